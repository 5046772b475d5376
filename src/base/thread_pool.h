// The compute pool of an engine: the calling thread and n-1 pinned workers that meet at a barrier.
#pragma once

#include <atomic>
#include <cstdint>
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
///
/// A call is cut into one share for each thread. The caller takes every share that its worker has
/// not begun when the caller's own is done: a worker that sleeps, or whose core is busy with
/// something else, makes a call slower but is never waited for.
/// Owner: one thread, the only one that may call run(). The functions run must not throw.
class ThreadPool {
 public:
  explicit ThreadPool(const ThreadPoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int n_threads() const { return n_threads_; }

  /// Calls fn(share) once for each share in [0, n_threads): 0 on the caller, others on their worker
  /// or the caller; returns when all are done. Two shares may run one after the other, so a share
  /// must not wait for another.
  template <typename Fn>
  void run(Fn&& fn) {
    if (n_threads_ == 1) {
      fn(0);
      return;
    }
    using Plain = std::remove_reference_t<Fn>;
    run_raw([](void* context, int share) { (*static_cast<Plain*>(context))(share); },
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
  /// What the caller and one worker share about the worker's share; both count runs.
  struct alignas(64) Slot {
    std::atomic<uint32_t> claimed{0};  ///< the last run whose share somebody took
    std::atomic<uint32_t> done{0};     ///< the last run whose share is done
    /// True for exactly one of those who try for this run.
    [[nodiscard]] bool claim(uint32_t run) {
      uint32_t before = run - 1;
      return claimed.load(std::memory_order_relaxed) == before &&
             claimed.compare_exchange_strong(before, run, std::memory_order_acq_rel);
    }
  };

  void run_raw(RawFn fn, void* context) noexcept;
  void work(int share, int cpu);
  void wait_for_run_after(uint32_t seen);

  int n_threads_;
  RawFn fn_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{0};  ///< number of the present run
  alignas(64) std::atomic<int> n_sleeping_{0};  ///< workers that want to be notified of a new one
  std::atomic<bool> stop_{false};
  std::vector<Slot> slots_;  ///< [n_threads]; the caller's own (0) is unused
  std::vector<std::thread> workers_;
};

}  // namespace baton
