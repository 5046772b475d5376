#include "cli/stop_signals.h"

#include <pthread.h>
#include <unistd.h>

namespace baton::cli {

StopSignals::StopSignals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread(&StopSignals::loop, this);
}

StopSignals::~StopSignals() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  pthread_kill(thread_.native_handle(), SIGTERM);  // out of its sigwait
  thread_.join();
}

void StopSignals::on_stop(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  callback_ = std::move(callback);
  if (signal_ != 0 && callback_) callback_();
}

int StopSignals::wait() {
  std::unique_lock lock(mutex_);
  stopped_.wait(lock, [&] { return signal_ != 0; });
  return signal_;
}

bool StopSignals::stopped() const {
  const std::lock_guard lock(mutex_);
  return signal_ != 0;
}

void StopSignals::loop() {
  while (true) {
    int signal = 0;
    if (sigwait(&set_, &signal) != 0) continue;
    const std::lock_guard lock(mutex_);
    if (quit_) return;
    // No farewells: whatever else runs, and the engines, end with this process.
    if (signal_ != 0) ::_exit(128 + signal);
    signal_ = signal;
    if (callback_) callback_();
    stopped_.notify_all();
  }
}

}  // namespace baton::cli
