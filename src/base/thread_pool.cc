#include "base/thread_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/cpu.h"
#include "base/service_thread.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace baton {
namespace {

// How long a worker spins before it sleeps: longer than the gap between two kernels of one forward
// pass (a few µs), shorter than what an idle engine may waste. About 50 µs of pauses.
constexpr int kSpins = 1000;

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(const ThreadPoolOptions& options)
    : n_threads_(options.n_threads), slots_(static_cast<size_t>(std::max(1, options.n_threads))) {
  BATON_CHECK(n_threads_ >= 1);
  for (int i = 1; i < n_threads_; ++i) {
    const bool pinned = static_cast<size_t>(i) < options.cpus.size();
    const int cpu = pinned ? options.cpus[static_cast<size_t>(i)] : -1;
    workers_.push_back(service_thread("pool", [this, i, cpu] { work(i, cpu); }));
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run_raw(RawFn fn, void* context) noexcept {
  fn_ = fn;
  context_ = context;
  // Sequentially consistent, like a worker's steps before it sleeps: either it sees the new run or
  // we see that it sleeps. Nobody sleeping saves a system call.
  const uint32_t run = epoch_.fetch_add(1) + 1;
  if (n_sleeping_.load() != 0) epoch_.notify_all();
  fn(context, 0);
  for (int share = 1; share < n_threads_; ++share) {
    Slot& slot = slots_[static_cast<size_t>(share)];
    if (!slot.claim(run)) continue;
    fn(context, share);
    slot.done.store(run, std::memory_order_relaxed);
  }
  for (int share = 1; share < n_threads_; ++share) {
    const Slot& slot = slots_[static_cast<size_t>(share)];
    for (int spins = 0; slot.done.load(std::memory_order_acquire) != run; ++spins) {
      if (spins < kSpins) {
        pause();
      } else {
        std::this_thread::yield();
      }
    }
  }
}

void ThreadPool::wait_for_run_after(uint32_t seen) {
  for (int spins = 0; spins < kSpins; ++spins) {
    if (epoch_.load(std::memory_order_acquire) != seen) return;
    pause();
  }
  n_sleeping_.fetch_add(1);
  epoch_.wait(seen);  // returns at once if it has changed
  n_sleeping_.fetch_sub(1);
}

void ThreadPool::work(int share, int cpu) {
  if (cpu >= 0) pin_this_thread(cpu);
  Slot& slot = slots_[static_cast<size_t>(share)];
  uint32_t run = 0;
  while (true) {
    wait_for_run_after(run);
    run = epoch_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    if (!slot.claim(run)) continue;
    fn_(context_, share);
    slot.done.store(run, std::memory_order_release);
  }
}

}  // namespace baton
