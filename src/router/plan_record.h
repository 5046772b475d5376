// Why a request went where it went, and what came of it: GET /requests/{id}/plan.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "router/policy.h"

namespace baton::router {

/// The plan and why it is this one: labels `plan` and `reason` of baton_router_plan_total.
enum class PlanReason {
  kUncached,         ///< disaggregated: so much is uncached that a prefill engine computes it
  kShort,            ///< decode_only: the prompt is below the threshold
  kCached,           ///< decode_only: what is uncached is below the threshold
  kNoPrefillEngine,  ///< decode_only: none that is ready can hand over to the decode engine
  kBothRoles,        ///< both: the engine has both roles
};
/// How an engine's part in a request ended: the label `outcome` of baton_router_requests_total.
enum class PartOutcome { kFinished, kCancelled, kFailed, kGivenUp, kNoRoom };

/// The plan that goes with it: "disaggregated", "decode_only", "both".
[[nodiscard]] std::string_view plan_name(PlanReason reason);
/// "uncached", "short", "cached", "no prefill engine", "both roles".
[[nodiscard]] std::string_view name(PlanReason reason);
/// "finished", "cancelled", "failed", "given_up", "no_room".
[[nodiscard]] std::string_view name(PartOutcome outcome);

/// One choice of an engine. Candidates are those that had room; `passed_over` says why others
/// weren't.
struct PickRecord {
  std::vector<Candidate> candidates;
  int chosen = -1;  ///< engine; -1 = none was picked
  std::vector<std::pair<int, std::string_view>> passed_over;
};

/// One try to run some choices of a request. Times are of the injected clock, 0 = didn't happen.
struct AttemptRecord {
  int first_choice = 0;
  int n_choices = 1;
  int n_resumed_tokens = 0;          ///< generated elsewhere before
  std::optional<PlanReason> reason;  ///< once the plan is made
  PickRecord decode;
  PickRecord prefill;
  int end = 0;  ///< of the range that could be handed over; 0 = nothing was prepared
  int n_matched = 0;
  int64_t queued_ns = 0;
  int64_t picked_ns = 0;
  int64_t prepared_ns = 0;
  int64_t sent_ns = 0;   ///< when the prefill engine had answered
  int64_t first_ns = 0;  ///< when the first token came
  int64_t ended_ns = 0;
  int n_tokens = 0;  ///< that this attempt generated
  int64_t n_sent_bytes = 0;
  int n_sender_cached = 0;
  int64_t put_ns = 0;  ///< these three: as measured by the prefill engine
  int64_t send_queue_ns = 0;
  int64_t prefill_ns = 0;
  std::optional<PartOutcome> outcome;
  std::string detail;  ///< why it ended so, where that isn't obvious
};

/// One request. Only the latest attempts are kept.
struct PlanRecord {
  static constexpr size_t kMaxAttempts = 64;
  std::string label;
  std::string policy;
  int n_prompt = 0;
  int n_choices = 1;
  int64_t arrival_ns = 0;
  int64_t n_attempts = 0;
  std::deque<std::shared_ptr<AttemptRecord>> attempts;

  std::shared_ptr<AttemptRecord> add_attempt();
  /// `engine_ids` by index.
  [[nodiscard]] std::string json(const std::vector<std::string>& engine_ids) const;
};

/// The plans of the latest requests, by label. Owner: the router's core.
class PlanBook {
 public:
  explicit PlanBook(size_t max_plans) : max_plans_(max_plans) {}
  /// A record with a label that is there already takes its place.
  std::shared_ptr<PlanRecord> add(std::string label);
  /// Null: unknown, or too long ago.
  [[nodiscard]] const PlanRecord* find(const std::string& label) const;
  [[nodiscard]] size_t size() const { return by_label_.size(); }

 private:
  size_t max_plans_;
  std::deque<std::shared_ptr<PlanRecord>> order_;
  std::unordered_map<std::string, std::shared_ptr<PlanRecord>> by_label_;
};

}  // namespace baton::router
