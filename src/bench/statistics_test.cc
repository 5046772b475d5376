#include "bench/statistics.h"

#include <gtest/gtest.h>

#include <numeric>

namespace baton::bench {
namespace {

TEST(Statistics, AsNumpy) {
  // numpy.percentile([1, 2, 4, 8], [50, 90, 99]) and numpy.std
  const Distribution d = describe({8, 1, 4, 2});
  EXPECT_EQ(d.n, 4U);
  EXPECT_DOUBLE_EQ(d.mean, 3.75);
  EXPECT_DOUBLE_EQ(d.std, 2.680951323690902);
  EXPECT_DOUBLE_EQ(d.min, 1);
  EXPECT_DOUBLE_EQ(d.p50, 3);
  EXPECT_DOUBLE_EQ(d.p90, 6.8);
  EXPECT_DOUBLE_EQ(d.p99, 7.88);
  EXPECT_DOUBLE_EQ(d.max, 8);
  std::vector<double> hundred(101);
  std::iota(hundred.begin(), hundred.end(), 0.0);
  EXPECT_DOUBLE_EQ(describe(hundred).p99, 99);
}

TEST(Statistics, FewSamples) {
  EXPECT_EQ(describe({}).n, 0U);
  EXPECT_EQ(describe({}).p99, 0);
  const Distribution one = describe({5});
  EXPECT_EQ(one.p50, 5);
  EXPECT_EQ(one.p99, 5);
  EXPECT_EQ(one.std, 0);
  EXPECT_EQ(quantile({1, 2}, 2.0), 2);
  EXPECT_EQ(quantile({1, 2}, -1.0), 1);
}

}  // namespace
}  // namespace baton::bench
