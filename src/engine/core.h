// The engine without its thread: a step is schedule → run → post-process. Deterministic, so that
// tests drive it by hand.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "engine/action.h"
#include "engine/kv_memory.h"
#include "engine/metrics.h"
#include "engine/options.h"
#include "engine/postprocess.h"
#include "engine/scheduler.h"
#include "model/token_model.h"

namespace baton::engine {

/// What an engine works with. What may be null says so; all must outlive the engine.
struct EngineDeps {
  model::TokenModel* model = nullptr;  ///< from now on used by the engine thread only
  const Clock* clock = nullptr;
  MetricsRegistry* metrics = nullptr;
  Trace* trace = nullptr;      ///< may be null
  ThreadPool* pool = nullptr;  ///< samples in parallel; null = on the engine thread alone
};

/// Owner: Engine; used by the engine thread only, except check() and limits().
class EngineCore {
 public:
  /// kInvalidArgument names the option that can't be; kExhausted when there is no memory for KV.
  [[nodiscard]] static Result<std::unique_ptr<EngineCore>> create(const EngineOptions& options,
                                                                  const EngineDeps& deps);

  /// Whether a request can ever run here. Thread-safe.
  [[nodiscard]] Status check(const TokenRequest& request) const;
  [[nodiscard]] const EngineLimits& limits() const { return limits_; }

  void add(TokenRequest request, UpdateSink sink);
  /// Ends a request or one choice: blocks are free on return, events not yet emitted are dropped.
  void cancel(RequestId id, std::optional<int> choice);
  /// Plans the next step: who is admitted, preempted, computed. False if there is nothing to
  /// compute.
  bool schedule();
  /// Computes what was scheduled, and what follows from it.
  void run();
  /// Both: one whole step.
  bool step() {
    if (!schedule()) return false;
    run();
    return true;
  }
  /// Sends what happened since the last call: one update for each request.
  void emit();
  /// Ends everything: kError after a failure, kCancelled because the server stops.
  void end_all(FinishReason reason, const std::string& message);

  [[nodiscard]] bool has_work() const { return scheduler_.has_work(); }
  [[nodiscard]] EngineStats stats() const;
  [[nodiscard]] int64_t n_left_queue() const { return scheduler_.counters().n_left_queue; }
  [[nodiscard]] int64_t n_ended() const { return n_ended_; }
  /// Brings the metrics up to date.
  void publish_metrics() { metrics_.publish(stats(), scheduler_.counters()); }

 private:
  EngineCore(const EngineOptions& options, const EngineDeps& deps, const EngineLimits& limits,
             KvMemory memory);

  [[nodiscard]] Status check_output(const TokenRequest& request) const;
  [[nodiscard]] bool forward(std::span<const BatchItem> items, float* logits);
  void forward_one_by_one();
  void note_admissions();
  void trace_step(int64_t end_ns);
  void send(Request& request);

  EngineOptions options_;
  EngineDeps deps_;
  EngineLimits limits_;
  KvMemory memory_;
  kv::BlockCache cache_;
  Scheduler scheduler_;
  EngineMetrics metrics_;
  PostProcessor post_;
  DecodeAction decode_;
  PrefillAction prefill_;
  std::array<Action*, 2> actions_{&decode_, &prefill_};
  Batch batch_;
  int64_t step_begin_ns_ = 0;
  MappedMemory logits_;
  int max_prompt_logits_;
  int64_t n_steps_ = 0;
  int64_t n_ended_ = 0;
  std::string last_error_;
};

}  // namespace baton::engine
