#include "shmem/shm/warmer.h"

#include <chrono>

#include "base/available_memory.h"
#include "base/service_thread.h"

namespace baton::shmem {
namespace {

constexpr size_t kChunksBetweenLooks = 32;
/// A chunk takes about 1 ms.
constexpr std::chrono::milliseconds kPause{3};
/// So much memory is left to others.
constexpr uint64_t kReserveBytes = uint64_t{1} << 30;

}  // namespace

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

/// Leaves the processor to others most of the time. Not by a low priority: whoever is kept from
/// running while it holds the process's memory map keeps all of its threads from changing that.
void Warmer::pause() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPause, [&] { return stop_; });
}

bool Warmer::stopped() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void Warmer::run() {
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
      // Pools are taken into account one by one, but all of them are warmed: better cold than dead.
      if (chunk % kChunksBetweenLooks == 0 && available_bytes() < kReserveBytes) break;
      const auto segment = next.lock();
      if (!segment || !segment->warm(chunk)) break;
      pause();
    }
  }
}

}  // namespace baton::shmem
