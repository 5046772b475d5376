// The router's logic, without threads and sockets: requests in, verbs to the engines' links out,
// events back to the clients. Everything is deterministic: time comes from the injected clock and
// from calls of tick().
//
// A request is run by attempts (attempt.h): at first one for all of its choices; after a failure
// one for each choice that goes on from tokens already sent.
//   queued → [prep_recv → preparing] → start_generate (+ remote_send) → running → ended
// Whatever ends an attempt goes through end_attempt(), which cancels what the engines still do for
// it, once; load counters are tickets, so they can't be left behind.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/trace.h"
#include "router/attempt.h"
#include "router/engine_link.h"
#include "router/engine_table.h"
#include "router/metrics.h"
#include "router/plan_record.h"
#include "router/planner.h"
#include "router/queue.h"

namespace baton::router {

struct RouterOptions {
  std::string policy = "auto";
  PlannerOptions planner;
  int max_queue = 2048;  ///< requests that wait in the router; further ones are refused
  int max_failures = 3;  ///< engine failures that end a request
  int64_t lease_ns = 0;  ///< asked for with prep_recv; 0 = the engine's default
  int64_t path_timeout_ns = int64_t{30} * 1'000'000'000;  ///< how long requests wait for a restart
  int64_t full_pause_ns = 100'000'000;  ///< an engine without room is not asked again before
  size_t max_plans = 4096;              ///< latest requests whose plans are kept
  /// An engine that hangs for so long is reported to on_hang(); 0 = none ever is.
  int64_t hang_timeout_ns = 0;
};

/// An engine that its supervisor should kill: only that can tell whether it will ever go on.
struct HungEngine {
  std::string id;
  int n_restarts = 0;  ///< of its supervisor's count: which of its lives
  std::string reason;
};

struct RouterDeps {
  const Clock& clock;
  MetricsRegistry& metrics;
  Trace* trace = nullptr;  ///< gets a `queue` event for the time in the router's queue; may be null
  std::function<void(const HungEngine&)> on_hang{};  ///< called by tick(); must not block
};

/// Single-threaded; the links are used from, and call back on, the same thread. Links outlive the
/// core's last use of them, and make no callback after the core is gone.
class RouterCore final : public EngineListener {
 public:
  /// kUnsupported: unknown policy.
  [[nodiscard]] static Result<std::unique_ptr<RouterCore>> create(const RouterOptions& options,
                                                                  const RouterDeps& deps);
  ~RouterCore() override = default;

  /// The index under which the link reports.
  int add_engine(std::string id, std::string url, EngineLink& link);
  void set_supervised(int engine, std::string url, SupervisedState state);

  /// Whether a request would be taken now: all of the two below.
  [[nodiscard]] Status check(const TokenRequest& request) const;
  /// kInvalidArgument: not a client's request (it has a lease, say).
  [[nodiscard]] static Status check_shape(const TokenRequest& request);
  /// New requests are taken until then: for ever while an engine can generate; as long as requests
  /// wait for one when the last has been lost; not at all before the first has come.
  [[nodiscard]] int64_t accepts_until_ns() const;
  /// kUnavailable: `accepts_until_ns` is over, as `missing` is; kExhausted: queue full (retryable).
  /// Thread-safe.
  [[nodiscard]] Status check_room(int64_t accepts_until_ns, const std::string& missing,
                                  size_t n_queued) const;
  /// Takes it, whatever check() says; `sink` gets everything of it from now on, inside of calls of
  /// the core. The id is one that no open request has.
  void add(TokenRequest request, const UpdateSink& sink);
  void cancel(RequestId id, std::optional<int> choice);
  /// Ends everything with an error.
  void end_all(const std::string& message);

  /// Hands queued work to engines and looks at time-outs. Call after every batch of other calls,
  /// and at deadline().
  void tick();
  [[nodiscard]] std::optional<int64_t> deadline() const;

  void on_up(int engine, const EngineInfo& info) override;
  void on_down(int engine, const std::string& reason) override;
  void on_state(int engine, const EngineState& state) override;
  void on_update(int engine, RequestUpdate update) override;

  [[nodiscard]] const EngineTable& engines() const { return engines_; }
  [[nodiscard]] size_t n_queued() const { return queue_.size(); }
  [[nodiscard]] size_t n_requests() const { return clients_.size(); }
  [[nodiscard]] size_t n_attempts() const { return attempts_.size(); }
  /// {"id",…} of the latest request with this label, for GET /requests/{id}/plan.
  [[nodiscard]] std::optional<std::string> plan_json(const std::string& label) const;

 private:
  /// Why an attempt ends, as its record and the metrics have it.
  struct Ending {
    PartOutcome outcome = PartOutcome::kFinished;
    std::string detail{};
  };
  /// Why an attempt is to be made again.
  struct Retry {
    RetryReason reason = RetryReason::kEngineDown;
    std::string detail;
    bool counts = true;      ///< as one of max_failures
    int failed_engine = -1;  ///< one that is up and not to be asked again, if there are others
    PartOutcome outcome = PartOutcome::kFailed;  ///< of the decode engine's part
  };
  /// What one update comes to for the client, and what is left to do about it.
  struct Delivery {
    RequestUpdate out;
    std::vector<int> given_up{};  ///< choices
    std::string why{};
    bool no_room = false;  ///< given up because the engine's blocks ran out
    std::string fault{};   ///< the engine sent what can't be right
  };

  RouterCore(const RouterOptions& options, const RouterDeps& deps,
             std::unique_ptr<Policy> decode_policy, std::unique_ptr<Policy> prefill_policy);

  // core.cc: requests, queue, engines.
  void accept(TokenRequest request, const UpdateSink& sink);
  void enqueue(ClientRequest& client, int first_choice, int n_choices, Lineage lineage);
  void dispatch();
  /// False: nothing behind it in the queue can go before it.
  bool try_place(Attempt& attempt);
  void pause(int engine);
  void note_restarts(Engine& engine);
  /// After what may have changed Engine::hangs(). Not after on_up(): of an incarnation that has
  /// been seen, only a frame is a sign of life.
  void note_hang(Engine& engine);
  void report_hangs();
  void update_path();
  void expire_path();
  [[nodiscard]] Attempt* find(RequestId id);
  [[nodiscard]] std::vector<std::string> engine_ids() const;

  // core_verbs.cc: the verbs and their answers.
  void place(Attempt& attempt, PickRecord pick);
  void trace_queue(const Attempt& attempt);
  void prepare(Attempt& attempt);
  void on_prepared(RequestId id, int engine, Result<PreparedReceive> result);
  [[nodiscard]] std::string fault_of(const Attempt& attempt, const PreparedReceive& prepared) const;
  void on_refused(Attempt& attempt, const Error& error, RetryReason reason);
  void plan_prefill(Attempt& attempt);
  void send(Attempt& attempt, int engine);
  void on_sent(RequestId id, Result<SentKv> result);
  void on_send_failed(Attempt& attempt, int engine, const Error& error);
  void release_held(RequestId id);
  void start(Attempt& attempt, PlanReason reason, std::optional<int> begin);
  [[nodiscard]] TokenRequest request_of(const Attempt& attempt, std::optional<int> begin) const;
  void on_started(RequestId id, int engine, std::optional<LeaseId> lease, Status status);

  // core_updates.cc: what engines generate, and the ways to end.
  void deliver(Attempt& attempt, RequestUpdate update);
  void take_prompt(Attempt& attempt, PromptInfo info, Delivery& delivery) const;
  void take_event(Attempt& attempt, TokenEvent event, Delivery& delivery) const;
  [[nodiscard]] std::string fault_of(const Attempt& attempt, const TokenEvent& event) const;
  void settle(Attempt& attempt, const Delivery& delivery);
  void retry(Attempt& attempt, const Retry& why);
  /// All that the engine has, elsewhere: it is down, or stuck.
  void plan_again(int engine, const std::string& why);
  void go_on(ClientRequest& client, const std::vector<int>& choices, const Lineage& lineage);
  void enqueue_again(ClientRequest& client, const std::vector<int>& choices,
                     const Lineage& lineage);
  void fail_unplanned(ClientRequest& client, const std::exception& e);
  void put_back(Attempt& attempt, const std::string& detail);
  void end_attempt(Attempt& attempt, const Ending& ending);
  void end_send(RequestId id, const std::string& detail);
  void fail_request(ClientRequest& client, ErrorCode code, const std::string& message);
  void forget_if_ended(ClientRequest& client);

  const RouterOptions options_;
  const Clock& clock_;
  Trace* const trace_;
  const std::function<void(const HungEngine&)> on_hang_;
  EngineTable engines_;
  EngineLoad preparing_;  ///< attempts that may ask for a place on a prefill engine yet
  Planner planner_;
  RouterMetrics metrics_;
  PlanBook plans_;
  Queue queue_;
  std::unordered_map<RequestId, std::unique_ptr<ClientRequest>> clients_;  ///< by the client's id
  std::unordered_map<RequestId, std::unique_ptr<Attempt>> attempts_;       ///< by their own
  std::unordered_map<RequestId, Send> sends_;                              ///< by the attempt's id
  uint64_t n_attempt_ids_ = 0;
  bool awaited_prefill_ = false;               ///< at the last tick: a lost one may come back
  bool dirty_ = false;                         ///< something changed that may let queued work go on
  std::optional<int64_t> no_engine_since_ns_;  ///< nobody could generate since then
};

}  // namespace baton::router
