#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace baton {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, every_share_runs_once_in_each_of_many_calls) {
  ThreadPool pool({.n_threads = GetParam(), .cpus = {}});
  std::vector<int> counts(static_cast<size_t>(GetParam()), 0);
  for (int run = 1; run <= 20000; ++run) {
    pool.run([&](int share) { ++counts[static_cast<size_t>(share)]; });
    for (const int count : counts) ASSERT_EQ(count, run);
  }
}

TEST_P(ThreadPoolTest, runs_after_the_workers_went_to_sleep) {
  ThreadPool pool({.n_threads = GetParam(), .cpus = {}});
  std::atomic<int> n_shares = 0;
  for (int run = 1; run <= 50; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(run % 5));
    pool.run([&](int) { ++n_shares; });
    ASSERT_EQ(n_shares, run * GetParam());
  }
}

TEST_P(ThreadPoolTest, ranges_cover_everything_once_and_are_cut_at_the_grain) {
  ThreadPool pool({.n_threads = GetParam(), .cpus = {}});
  for (const int64_t n : {0, 1, 7, 16, 17, 100}) {
    std::vector<int> counts(static_cast<size_t>(n), 0);
    pool.for_ranges(n, 8, [&](int64_t begin, int64_t end) {
      EXPECT_LT(begin, end);
      EXPECT_EQ(begin % 8, 0);
      for (int64_t i = begin; i < end; ++i) ++counts[static_cast<size_t>(i)];
    });
    for (const int count : counts) EXPECT_EQ(count, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(threads, ThreadPoolTest, testing::Values(1, 2, 3, 5));

TEST(ThreadPool, the_caller_takes_the_share_of_a_worker_that_does_not_come) {
  ThreadPool pool({.n_threads = 2, .cpus = {}});
  int n_by_caller = 0;
  const auto caller = std::this_thread::get_id();
  for (int run = 0; run < 1000; ++run) {
    if (run % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool.run([&](int share) {
      if (share == 1 && std::this_thread::get_id() == caller) ++n_by_caller;
    });
  }
  // The caller needs less time for two empty shares than a sleeping worker to wake.
  EXPECT_GT(n_by_caller, 0);
}

}  // namespace
}  // namespace baton
