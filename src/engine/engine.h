// An engine: one thread that owns scheduler, KV and model, and the thread-safe way to it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "engine/core.h"
#include "engine/mailbox.h"

namespace baton::engine {

/// Lifecycle: create() → start() → drain() → stop(). The thread sleeps while there is no work.
/// Thread-safe, but start() and stop() belong to one owner.
class Engine {
 public:
  /// Errors as EngineCore::create(). `cpu` >= 0: the engine thread pins itself to it.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> create(const EngineOptions& options,
                                                              const EngineDeps& deps, int cpu = -1);
  /// Stops.
  ~Engine();

  /// `listener` is called on the engine thread whenever a round's updates have all been sent and
  /// stats() is up to date, so that what goes the same way can go together; `idle`: nothing is left
  /// to compute. Before start(); must not block.
  void on_round(std::function<void(bool idle)> listener) { on_round_ = std::move(listener); }
  void start();
  /// Queues a request; `sink` is then called on the engine thread with every update. On error
  /// nothing was queued: kInvalidArgument = can never run here, kExhausted = queue full,
  /// kUnavailable = draining or stopped.
  ///
  /// With `leased`: kNotFound = the lease isn't open (any more); one that ends before the engine
  /// thread gets here gives the request up.
  [[nodiscard]] Status submit(TokenRequest request, UpdateSink sink);
  /// Makes room for a prompt's KV and leases it. `done` is called once, on the engine thread within
  /// a round of its loop, or, if it is refused at once, here. kInvalidArgument = never,
  /// kUnsupported = not this engine, kExhausted (retryable) = not now, kUnavailable = as submit().
  void prepare_receive(PrepareReceive request, std::function<void(Result<PreparedReceive>)> done);
  /// Ends a lease that no request has taken over. Unknown ids are ignored.
  void release(LeaseId lease);
  /// Queues a send; `done` is called once on the engine thread: when all KV is delivered, or with
  /// an error. On error of the call itself nothing was queued (as submit(); kUnsupported also for a
  /// receiver of another layout) and `done` is not called.
  [[nodiscard]] Status remote_send(RemoteSend request, std::function<void(Result<SentKv>)> done);
  /// Ends a request, a send or one choice in any state; blocks are free at the next step boundary.
  /// Unknown ids are ignored. The ended choices get no further events but those whose sink call has
  /// begun.
  void cancel(RequestId id, std::optional<int> choice = std::nullopt);

  /// Takes no more requests; waits until all have ended. False if `timeout_ns` passed before.
  bool drain(int64_t timeout_ns);
  /// Ends what is left with an error and joins the thread.
  void stop();

  [[nodiscard]] const EngineLimits& limits() const { return core_->limits(); }
  [[nodiscard]] EngineStats stats() const;
  [[nodiscard]] EngineHealth health() const;

 private:
  enum class Phase { kCreated, kRunning, kDraining, kStopped };

  Engine(const EngineOptions& options, const EngineDeps& deps, std::unique_ptr<EngineCore> core,
         int cpu);

  void loop();
  /// One round: messages in, updates out, one step. Whether another should follow at once.
  bool round(bool wait);
  [[nodiscard]] std::vector<Message> take(bool wait);
  void handle(Message& message);
  void refuse(Message& message);
  void publish();

  const int64_t stuck_after_ns_;
  const Clock& clock_;
  const int cpu_;
  std::unique_ptr<EngineCore> core_;
  std::shared_ptr<Mailbox> mailbox_;  ///< the heap's listener holds it too
  std::function<void(bool)> on_round_ = [](bool) {};
  std::atomic<Phase> phase_{Phase::kCreated};
  std::atomic<bool> stop_{false};
  mutable std::mutex stats_mutex_;
  EngineStats stats_;
  std::vector<LeaseId> open_leases_;
  std::thread thread_;
};

}  // namespace baton::engine
