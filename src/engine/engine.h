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

  /// `listener` is called on the engine thread whenever a round's updates have all been sent, so
  /// that what goes the same way can go together. Before start(); must not block.
  void on_round(std::function<void()> listener) { on_round_ = std::move(listener); }
  void start();
  /// Queues a request; `sink` is then called on the engine thread with every update. On error
  /// nothing was queued: kInvalidArgument = can never run here, kExhausted = queue full,
  /// kUnavailable = draining or stopped.
  [[nodiscard]] Status submit(TokenRequest request, UpdateSink sink);
  /// Ends a request or one choice in any state; blocks are free at the next step boundary. Unknown
  /// ids are ignored. The ended choices get no further events but those whose sink call has begun.
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
  /// One round: messages in, updates out, one step. Whether the step found something to do.
  bool round(bool wait);
  void handle(Message& message);
  void publish();

  const int64_t stuck_after_ns_;
  const Clock& clock_;
  const int cpu_;
  std::unique_ptr<EngineCore> core_;
  Mailbox mailbox_;
  std::function<void()> on_round_ = [] {};
  std::atomic<Phase> phase_{Phase::kCreated};
  std::atomic<bool> stop_{false};
  mutable std::mutex stats_mutex_;
  EngineStats stats_;
  std::thread thread_;
};

}  // namespace baton::engine
