#include "frontend/worker.h"

#include <exception>
#include <utility>

#include "base/log.h"

namespace baton::frontend {

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  news_.notify_one();
  thread_.join();
}

uint64_t Worker::add(std::function<void()> task) {
  uint64_t ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = next_ticket_++;
    tasks_.emplace(ticket, std::move(task));
  }
  news_.notify_one();
  return ticket;
}

void Worker::drop(uint64_t ticket) {
  decltype(tasks_)::node_type dropped;  // destroyed after the lock: what it holds may be large
  const std::lock_guard lock(mutex_);
  dropped = tasks_.extract(ticket);
}

void Worker::run() {
  while (true) {
    decltype(tasks_)::node_type task;
    {
      std::unique_lock lock(mutex_);
      news_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (stop_) return;
      task = tasks_.extract(tasks_.begin());
    }
    try {
      task.mapped()();
    } catch (const std::exception& e) {
      spdlog::error("frontend worker: {}", e.what());
    }
  }
}

}  // namespace baton::frontend
