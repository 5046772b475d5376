// Where an attempt goes: pure decisions over the engines' table.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "router/attempt.h"
#include "router/engine_table.h"
#include "router/policy.h"

namespace baton::router {

struct PlannerOptions {
  int remote_prefill_min_tokens =
      128;                    ///< uncached prompt tokens from which a prefill engine helps
  int max_sends = 2;          ///< remote_sends in flight at one prefill engine
  int max_extra_choices = 2;  ///< beyond its batch that a decode engine is given
  /// How long a prompt waits for a prefill engine that was lost before its decode engine computes
  /// it: a restart takes a second or two, and then its bits stay what they are.
  int64_t prefill_wait_ns = int64_t{15} * 1'000'000'000;
};

/// Where the next step of an attempt is to be done, or why nowhere yet.
struct Placement {
  enum class Kind {
    kPlaced,
    kDecodeFull,   ///< engines that could generate are full
    kPrefillFull,  ///< the prefill engines are: a prompt that needs none may go first
    kNobody,       ///< none is ready
    kUnfit,        ///< every ready engine has said that it can never run this
  };
  Kind kind = Kind::kNobody;
  PickRecord pick;  ///< `chosen` is set with kPlaced
};

/// Owner: the router's core. The table outlives it.
class Planner {
 public:
  Planner(const PlannerOptions& options, const EngineTable& engines,
          std::unique_ptr<Policy> decode_policy, std::unique_ptr<Policy> prefill_policy);

  /// The engine to generate on. `n_preparing` attempts may still ask for a place on a prefill
  /// engine.
  [[nodiscard]] Placement pick_decode(const Attempt& attempt, int n_preparing, int64_t now_ns);
  /// The engine to compute the prompt on, for attempt.decode: kPlaced, kPrefillFull (or one that
  /// was lost may be back soon) or kNobody.
  [[nodiscard]] Placement pick_prefill(const Attempt& attempt, int64_t now_ns);

  /// Some prefill engine that is ready could send to `decode`.
  [[nodiscard]] bool any_may_send(const Attempt& attempt, const Engine& decode) const;
  /// Tokens [0, end) of the prompt that can be handed over to `engine`; 0 if it is too short.
  [[nodiscard]] int handover_end(const ClientRequest& client, const Engine& engine) const;
  /// So much is uncached that a prefill engine is worth its while.
  [[nodiscard]] bool wants_prefill(int n_uncached) const {
    return n_uncached >= options_.remote_prefill_min_tokens;
  }
  /// Set: a prefill engine was lost that may be back before then.
  [[nodiscard]] std::optional<int64_t> awaits_prefill_until_ns(int64_t now_ns) const;
  [[nodiscard]] std::string_view policy_name() const { return decode_policy_->name(); }

 private:
  enum class PrefillRoom { kNoEngine, kFull, kRoom };
  [[nodiscard]] bool may_send(const Attempt& attempt, const Engine& prefill, int index,
                              const Engine& decode) const;
  [[nodiscard]] int free_sends(const Engine& prefill, int64_t now_ns) const;
  [[nodiscard]] PrefillRoom prefill_room(const Attempt& attempt, const Engine& decode,
                                         int n_preparing, int64_t now_ns) const;
  [[nodiscard]] bool has_room(const Attempt& attempt, const Engine& engine, int64_t now_ns) const;

  PlannerOptions options_;
  const EngineTable& engines_;
  std::unique_ptr<Policy> decode_policy_;
  std::unique_ptr<Policy> prefill_policy_;
};

}  // namespace baton::router
