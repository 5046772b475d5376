#include "base/thread_pool.h"

#include "base/check.h"
#include "base/cpu.h"

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

ThreadPool::ThreadPool(const ThreadPoolOptions& options) : n_threads_(options.n_threads) {
  BATON_CHECK(n_threads_ >= 1);
  for (int i = 1; i < n_threads_; ++i) {
    const bool pinned = static_cast<size_t>(i) < options.cpus.size();
    workers_.emplace_back(&ThreadPool::work, this, i,
                          pinned ? options.cpus[static_cast<size_t>(i)] : -1);
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run_raw(RawFn fn, void* context) {
  fn_ = fn;
  context_ = context;
  n_running_.store(n_threads_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  fn(context, 0);
  for (int spins = 0; n_running_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::work(int thread, int cpu) {
  if (cpu >= 0) pin_this_thread(cpu);
  uint32_t seen = 0;
  while (true) {
    for (int spins = 0; epoch_.load(std::memory_order_acquire) == seen; ++spins) {
      if (spins < kSpins) {
        pause();
      } else {
        epoch_.wait(seen, std::memory_order_acquire);
      }
    }
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) return;
    fn_(context_, thread);
    n_running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace baton
