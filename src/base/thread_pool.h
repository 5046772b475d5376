// The compute pool of an engine: the calling thread and n-1 pinned workers that meet at a barrier.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/result.h"

namespace baton {

struct ThreadPoolOptions {
  int n_threads = 1;      ///< the calling thread included
  std::vector<int> cpus;  ///< worker i is pinned to cpus[i] (the caller pins itself); empty = none
};

/// Fork-join over a fixed set of threads, made for thousands of calls a second: workers spin some
/// microseconds for the next call, then sleep on a futex, so an idle engine uses no CPU.
/// Owner: one thread, the only one that may call run(). The functions run must not throw.
class ThreadPool {
 public:
  explicit ThreadPool(const ThreadPoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int n_threads() const { return n_threads_; }

  /// Calls fn(thread) for thread in [0, n_threads), thread 0 on the caller; returns when all are
  /// done.
  template <typename Fn>
  void run(Fn&& fn) {
    if (n_threads_ == 1) {
      fn(0);
      return;
    }
    using Plain = std::remove_reference_t<Fn>;
    run_raw([](void* context, int thread) { (*static_cast<Plain*>(context))(thread); },
            const_cast<void*>(static_cast<const void*>(&fn)));
  }

  /// Splits [0, n) into one contiguous range for each thread, cut at multiples of `grain`:
  /// fn(begin, end), never called with an empty range.
  template <typename Fn>
  void for_ranges(int64_t n, int64_t grain, Fn&& fn) {
    run([&](int thread) {
      const int64_t n_grains = (n + grain - 1) / grain;
      const int64_t begin = n_grains * thread / n_threads_ * grain;
      int64_t end = n_grains * (thread + 1) / n_threads_ * grain;
      if (end > n) end = n;
      if (begin < end) fn(begin, end);
    });
  }

 private:
  using RawFn = void (*)(void*, int);
  void run_raw(RawFn fn, void* context);
  void work(int thread, int cpu);

  int n_threads_;
  RawFn fn_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{0};  ///< one more for each run; workers wait on it
  alignas(64) std::atomic<int> n_running_{0};   ///< workers that have not finished this run
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace baton
