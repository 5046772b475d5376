// The engine without its thread: a step is schedule → run → post-process. Deterministic, so that
// tests drive it by hand.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "engine/action.h"
#include "engine/kv_memory.h"
#include "engine/kv_sender.h"
#include "engine/metrics.h"
#include "engine/options.h"
#include "engine/postprocess.h"
#include "engine/receive_action.h"
#include "engine/scheduler.h"
#include "model/token_model.h"

namespace baton::engine {

/// What an engine works with. What may be null says so; all must outlive the engine.
struct EngineDeps {
  model::TokenModel* model = nullptr;  ///< from now on used by the engine thread only
  const Clock* clock = nullptr;
  MetricsRegistry* metrics = nullptr;
  Trace* trace = nullptr;  ///< may be null
  /// This engine's place in a symmetric world, with memory for plan_kv(); null = it serves alone.
  shmem::Heap* heap = nullptr;
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
  [[nodiscard]] Status check(const PrepareReceive& request) const {
    return receive_.check(request);
  }
  [[nodiscard]] Status check(const RemoteSend& request) const { return sender_.check(request); }
  [[nodiscard]] const EngineLimits& limits() const { return limits_; }

  /// Requests have passed check(). One whose lease is gone ends at once, as given up; one for which
  /// there is no memory, with kError.
  void add(TokenRequest request, const UpdateSink& sink);
  /// `done` is called once, when everything is delivered or nothing more will be. kCancelled: by
  /// cancel(); kUnavailable: the receiver is gone, or wants it no more.
  void add(RemoteSend request, const std::function<void(Result<SentKv>)>& done);
  /// Makes room for a prompt's KV, at once or not at all (kExhausted, retryable).
  [[nodiscard]] Result<PreparedReceive> prepare(const PrepareReceive& request) {
    return receive_.prepare(request);
  }
  /// Ends a lease that no request has taken over. Unknown ids are ignored.
  void release(LeaseId lease) { receive_.release(lease); }
  /// Ends a request, a send or one choice: blocks are free on return (or in quarantine), events not
  /// yet emitted are dropped.
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
  /// Forgets everything cached that nobody holds.
  void clear_cached() { scheduler_.clear_cached(); }
  /// Sends what happened since the last call: one update for each request.
  void emit();
  /// Ends everything, leases too: kError after a failure, kCancelled because the server stops.
  void end_all(FinishReason reason, const std::string& message);

  [[nodiscard]] bool has_work() const { return scheduler_.has_work(); }
  /// emit() has something to send.
  [[nodiscard]] bool has_updates() const { return post_.has_dirty(); }
  /// When schedule() has to be called though no message comes and there is no work; none = never.
  [[nodiscard]] std::optional<int64_t> next_poll_ns() const { return receive_.next_poll_ns(); }
  [[nodiscard]] std::vector<LeaseId> open_leases() const { return receive_.open_ids(); }
  [[nodiscard]] EngineStats stats() const;
  [[nodiscard]] int64_t n_left_queue() const {
    return scheduler_.counters().n_left_queue + n_refused_;
  }
  [[nodiscard]] int64_t n_ended() const { return n_ended_; }
  /// Brings the metrics up to date.
  void publish_metrics() { metrics_.publish(stats(), scheduler_.counters()); }

 private:
  EngineCore(const EngineOptions& options, const EngineDeps& deps, const EngineLimits& limits,
             KvMemory memory);

  void enqueue(TokenRequest request, const UpdateSink& sink);
  void enqueue(RemoteSend request, const std::function<void(Result<SentKv>)>& done);
  /// Forgets a request or a send for which memory ran out while it was queued, and counts it.
  void abandon(RequestId id);
  [[nodiscard]] Status check_output(const TokenRequest& request) const;
  void run_items();
  [[nodiscard]] bool forward(std::span<const BatchItem> items, float* logits);
  void forward_one_by_one();
  void fail_item(const BatchItem& item);
  void end_lost();
  /// Ends sends that nobody waits for any more; lets the others' receivers know of them.
  void touch_sends();
  void finish_sends();
  /// Frees what a send holds and tells its sender.
  void end_send(Request& request, Result<SentKv> result);
  [[nodiscard]] SentKv sent(Request& request);
  void note_admissions();
  void note_admission(Request& request);
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
  KvSender sender_;
  ReceiveAction receive_;
  DecodeAction decode_;
  PrefillAction prefill_;
  SendAction send_;
  std::array<Action*, 4> actions_{&receive_, &decode_, &prefill_, &send_};
  Batch batch_;
  int64_t step_begin_ns_ = 0;
  MappedMemory logits_;
  int max_prompt_logits_;
  int64_t n_steps_ = 0;
  int64_t n_ended_ = 0;
  int64_t n_refused_ = 0;  ///< requests and sends that ended before they were in the queue
  std::string last_error_;
};

}  // namespace baton::engine
