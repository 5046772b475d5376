#include "linalg/machine_rates.h"

#include <gtest/gtest.h>

#include <vector>

#include "linalg/aligned_buffer.h"
#include "linalg/test_sets.h"

namespace baton::linalg {
namespace {

/// Advances by itself: every look at it is a millisecond later than the last.
class CountingClock final : public Clock {
 public:
  [[nodiscard]] int64_t now_ns() const override { return now_ns_ += 1'000'000; }

 private:
  mutable int64_t now_ns_ = 0;
};

struct Machine {
  explicit Machine(int n_threads) : pool({.n_threads = n_threads, .cpus = {}}) {}
  ThreadPool pool;
  Workspace workspace;
  Context context{choose_kernels("", cpu_features()).value(), pool, workspace};
};

TEST(MachineRates, BytesOverTime) {
  const CountingClock clock;
  for (const int n_threads : {1, 3}) {
    Machine machine(n_threads);
    // More than 64 MiB are read once in each way: the clock says one millisecond for each.
    auto memory = AlignedBuffer::create(size_t{96} << 20, "test");
    ASSERT_TRUE(memory.has_value());
    const double rate = measure_read_rate(machine.context, {memory->data(), memory->size()}, clock);
    EXPECT_NEAR(rate, double(size_t{96} << 20) / 1e-3, 1e6);
    // A small memory several times; its rest that makes no line is left out.
    const double small = measure_read_rate(machine.context, {memory->data(), 64 * 12 + 5}, clock);
    EXPECT_GT(small, double(size_t{64} << 20) / 1e-3);
    EXPECT_EQ(measure_read_rate(machine.context, {}, clock), 0);
    EXPECT_EQ(measure_read_rate(machine.context, {memory->data(), 63}, clock), 0);
  }
}

TEST(MachineRates, ProductsOverTime) {
  const CountingClock clock;
  Machine machine(2);
  const auto rate = measure_product_rate(machine.context, {"qkv", 96, 160, 1}, clock, 5);
  ASSERT_TRUE(rate.has_value()) << rate.error().message;
  // Five calls of each thread in what the clock calls a millisecond: the largest panel wins.
  EXPECT_EQ(rate->n_rows, 256);
  EXPECT_NEAR(rate->flops_per_s, 2.0 * 5 * 256 * 96 * 160 * 2 / 1e-3, 1.0);
  EXPECT_FALSE(rate->implementation.empty());
}

}  // namespace
}  // namespace baton::linalg
