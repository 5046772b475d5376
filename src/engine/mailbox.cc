#include "engine/mailbox.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace baton::engine {

namespace {

tl::unexpected<Error> full(std::string message) {
  return tl::unexpected(Error{ErrorCode::kExhausted, std::move(message), true});
}

}  // namespace

Status Mailbox::submit(Message&& message, int64_t now_ns) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return fail(ErrorCode::kUnavailable, "{}", *closed_);
    const int64_t n_waiting = n_submitted_ - progress_.n_left_queue;
    if (n_waiting >= max_queue_) {
      return full(fmt::format("the queue is full ({} requests wait); try again later", n_waiting));
    }
    push_locked(std::move(message), now_ns);
    if (n_submitted_ == progress_.n_ended) pending_since_ns_ = now_ns;
    ++n_submitted_;
  }
  arrived_.notify_one();
  return {};
}

// Whoever fills it with what isn't counted as a request is stopped at a multiple of the queue.
bool Mailbox::overfull() const { return messages_.size() >= 4 * static_cast<size_t>(max_queue_); }

void Mailbox::push_locked(Message&& message, int64_t now_ns) {
  messages_.push_back(std::move(message));  // throws if it throws, and has done nothing then
  if (messages_.size() == 1) untaken_since_ns_ = now_ns;
}

Status Mailbox::prepare(PrepareMessage&& message, int64_t now_ns) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return fail(ErrorCode::kUnavailable, "{}", *closed_);
    if (overfull()) return full("the engine has not come to its messages; try again later");
    push_locked(std::move(message), now_ns);
  }
  arrived_.notify_one();
  return {};
}

void Mailbox::release(ReleaseMessage message, int64_t now_ns) {
  {
    const std::lock_guard lock(mutex_);
    if (overfull()) return;
    push_locked(message, now_ns);
  }
  arrived_.notify_one();
}

void Mailbox::cancel(CancelMessage message, int64_t now_ns) {
  {
    const std::lock_guard lock(mutex_);
    // Nothing is pending, so nothing can be meant; and the box can't grow without bound.
    if (n_submitted_ == progress_.n_ended) return;
    push_locked(message, now_ns);
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

std::vector<Message> Mailbox::take() {
  const std::lock_guard lock(mutex_);
  woken_ = false;
  return std::exchange(messages_, {});
}

std::vector<Message> Mailbox::wait_and_take(std::optional<int64_t> timeout_ns) {
  std::unique_lock lock(mutex_);
  const auto something = [&] { return woken_ || !messages_.empty(); };
  if (!timeout_ns) {
    arrived_.wait(lock, something);
  } else {
    arrived_.wait_for(lock, std::chrono::nanoseconds(*timeout_ns), something);
  }
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
  const int64_t n_requests = n_submitted_ - progress_.n_ended;
  int64_t since_ns = n_requests > 0 ? pending_since_ns_ : untaken_since_ns_;
  if (!messages_.empty()) since_ns = std::min(since_ns, untaken_since_ns_);
  return {n_requests, messages_.size(), since_ns};
}

bool Mailbox::wait_until_idle(int64_t timeout_ns) const {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                        [&] { return n_submitted_ == progress_.n_ended; });
}

}  // namespace baton::engine
