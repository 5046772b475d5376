#include "engine/mailbox.h"

#include <chrono>
#include <utility>

namespace baton::engine {

Status Mailbox::submit(SubmitMessage message, int64_t now_ns) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return fail(ErrorCode::kUnavailable, "{}", *closed_);
    const int64_t n_waiting = n_submitted_ - progress_.n_left_queue;
    if (n_waiting >= max_queue_) {
      auto full = fail(ErrorCode::kExhausted,
                       "the queue is full ({} requests wait); try again later", n_waiting);
      full.value().retryable = true;
      return full;
    }
    if (n_submitted_ == progress_.n_ended) pending_since_ns_ = now_ns;
    ++n_submitted_;
    messages_.emplace_back(std::move(message));
  }
  arrived_.notify_one();
  return {};
}

void Mailbox::cancel(CancelMessage message) {
  {
    const std::lock_guard lock(mutex_);
    // Nothing is pending, so nothing can be meant; and the box can't grow without bound.
    if (n_submitted_ == progress_.n_ended) return;
    messages_.emplace_back(message);
  }
  arrived_.notify_one();
}

void Mailbox::close(std::string reason) {
  const std::lock_guard lock(mutex_);
  if (!closed_) closed_ = std::move(reason);
}

void Mailbox::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  arrived_.notify_one();
}

std::vector<Message> Mailbox::take(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) arrived_.wait(lock, [&] { return woken_ || !messages_.empty(); });
  woken_ = false;
  return std::exchange(messages_, {});
}

void Mailbox::report(const Progress& progress) {
  bool idle = false;
  {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
    idle = n_submitted_ == progress_.n_ended;
  }
  if (idle) idle_.notify_all();
}

Mailbox::Pending Mailbox::pending() const {
  const std::lock_guard lock(mutex_);
  return {n_submitted_ - progress_.n_ended, pending_since_ns_};
}

bool Mailbox::wait_until_idle(int64_t timeout_ns) const {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                        [&] { return n_submitted_ == progress_.n_ended; });
}

}  // namespace baton::engine
