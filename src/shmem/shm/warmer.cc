#include "shmem/shm/warmer.h"

#include <sys/resource.h>
#include <unistd.h>

#include "base/service_thread.h"

namespace baton::shmem {

Warmer::Warmer() : thread_(service_thread("heap-warmer", [this] { run(); })) {}

Warmer::~Warmer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Warmer::add(const std::shared_ptr<const Segment>& segment) {
  if (!segment->claim_warming()) return;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(segment);
  }
  changed_.notify_one();
}

bool Warmer::stopped() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void Warmer::run() {
  // Of this thread alone: Linux keeps the priority by thread. Without it the rest is as right.
  constexpr int kLowestPriority = 19;
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);
  while (true) {
    std::weak_ptr<const Segment> next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    for (size_t chunk = 0; !stopped(); ++chunk) {
      const auto segment = next.lock();
      if (!segment || !segment->warm(chunk)) break;
    }
  }
}

}  // namespace baton::shmem
