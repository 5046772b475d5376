// SIGTERM and SIGINT as events: the first asks the process to end, the second ends it at once.
#pragma once

#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace baton::cli {

/// Made before other threads, which then leave these signals to it. Thread-safe. While it lives,
/// SIGPIPE is ignored too: a client that went away is an error code, not our end.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// `callback` runs once, on another thread, at the first signal, or here and now if that has
  /// come. Replaces an earlier one; {} takes it back, and waits until it does not run.
  void on_stop(std::function<void()> callback);
  /// Sleeps until the first signal; its number.
  int wait();
  [[nodiscard]] bool stopped() const;

 private:
  void loop();

  sigset_t set_{};
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  std::function<void()> callback_;
  int signal_ = 0;
  bool quit_ = false;
  std::thread thread_;
};

}  // namespace baton::cli
