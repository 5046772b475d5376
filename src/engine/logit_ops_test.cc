#include "engine/logit_ops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace baton::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Every implementation that this CPU can run.
std::vector<const LogitOps*> all_ops() {
  std::vector<const LogitOps*> ops{&logit_ops(CpuFeatures{})};
  if (cpu_features().avx2) ops.push_back(&logit_ops(CpuFeatures{.avx2 = true}));
  if (cpu_features().avx512) ops.push_back(&logit_ops(CpuFeatures{.avx2 = true, .avx512 = true}));
  return ops;
}

std::vector<float> random_logits(int n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 5.0F);
  std::vector<float> logits(static_cast<size_t>(n));
  for (float& x : logits) x = normal(random);
  return logits;
}

TEST(Weighting, IsTheExponentialFunction) {
  const Weighting weighting{.max = 0.0F, .inverse_temperature = 1.0F};
  for (double x = -87.0; x <= 0.0; x += 0.00713) {
    const auto logit = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(logit));
    ASSERT_NEAR(weighting.weight(logit), exact, 2e-7 * exact) << x;
  }
  EXPECT_EQ(weighting.weight(0.0F), 1.0F);
}

TEST(Weighting, MaxTemperatureAndReach) {
  const Weighting weighting{.max = 3.0F, .inverse_temperature = 2.0F, .reach = 4.0F};
  EXPECT_EQ(weighting.weight(3.0F), 1.0F);
  EXPECT_NEAR(weighting.weight(2.0F), std::exp(-2.0), 1e-7);
  EXPECT_NEAR(weighting.weight(1.0F), std::exp(-4.0), 1e-7);
  EXPECT_EQ(weighting.weight(0.999F), 0.0F);
  EXPECT_EQ(weighting.weight(kNan), 0.0F);
  EXPECT_EQ(weighting.weight(-kInf), 0.0F);
  const Weighting huge{.max = FLT_MAX, .inverse_temperature = 1e5F};
  EXPECT_EQ(huge.weight(kInf), 1.0F);
  EXPECT_EQ(huge.weight(FLT_MAX), 1.0F);
  EXPECT_EQ(huge.weight(-FLT_MAX), 0.0F);
}

TEST(LogitOps, MaximaAndSumsAgreeWithTheDefinition) {
  for (const int n : {1, 15, 16, 17, 255, 256, 257, 1000, 49152}) {
    const auto logits = random_logits(n, static_cast<unsigned>(n));
    const Weighting weighting{.max = *std::max_element(logits.begin(), logits.end()),
                              .inverse_temperature = 0.7F,
                              .reach = 12.0F};
    const auto n_blocks = static_cast<size_t>(n_logit_blocks(n));
    for (const LogitOps* ops : all_ops()) {
      std::vector<float> maxima(n_blocks);
      std::vector<float> sums(n_blocks);
      ops->block_maxima(logits, maxima.data());
      ops->block_sums(logits, maxima.data(), weighting, sums.data());
      for (size_t b = 0; b < n_blocks; ++b) {
        float max = -kInf;
        double sum = 0.0;
        for (size_t i = b * kLogitBlock; i < std::min<size_t>((b + 1) * kLogitBlock, logits.size());
             ++i) {
          max = std::max(max, logits[i]);
          const double exponent = (static_cast<double>(logits[i]) - weighting.max) * 0.7F;
          if (exponent >= -12.0) sum += std::exp(exponent);
        }
        ASSERT_EQ(maxima[b], max);
        ASSERT_NEAR(sums[b], sum, 1e-5 * sum + 1e-7);
      }
    }
  }
}

TEST(LogitOps, AllImplementationsGiveTheSameBits) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    auto logits = random_logits(5000 + static_cast<int>(seed), seed);
    logits[300] = -kInf;
    if (seed % 2 == 1) logits[600] = kInf;
    const auto n_blocks = static_cast<size_t>(n_logit_blocks(static_cast<int>(logits.size())));
    std::vector<float> expected_maxima(n_blocks);
    std::vector<float> expected_sums(n_blocks);
    const LogitOps& portable = logit_ops(CpuFeatures{});
    portable.block_maxima(logits, expected_maxima.data());
    const Weighting weighting{
        .max = *std::max_element(expected_maxima.begin(), expected_maxima.end()),
        .inverse_temperature = 1.0F / (0.3F + static_cast<float>(seed) * 0.1F)};
    portable.block_sums(logits, expected_maxima.data(), weighting, expected_sums.data());
    for (const LogitOps* ops : all_ops()) {
      std::vector<float> maxima(n_blocks);
      std::vector<float> sums(n_blocks);
      ops->block_maxima(logits, maxima.data());
      ops->block_sums(logits, maxima.data(), weighting, sums.data());
      for (size_t b = 0; b < n_blocks; ++b) {
        ASSERT_EQ(std::bit_cast<uint32_t>(maxima[b]), std::bit_cast<uint32_t>(expected_maxima[b]));
        ASSERT_EQ(std::bit_cast<uint32_t>(sums[b]), std::bit_cast<uint32_t>(expected_sums[b]));
      }
    }
  }
}

TEST(LogitOps, InfinitiesAndNan) {
  for (const LogitOps* ops : all_ops()) {
    for (const size_t at : {0U, 17U, 255U, 256U, 260U, 298U}) {
      std::vector<float> logits(300, -kInf);
      logits[at] = kNan;
      logits[299] = kInf;
      float maxima[2];
      ops->block_maxima(logits, maxima);
      EXPECT_EQ(std::isnan(maxima[at / kLogitBlock]), true) << at;
      EXPECT_EQ(std::isnan(maxima[1 - at / kLogitBlock]), false) << at;
      logits[at] = -2.0F;
      ops->block_maxima(logits, maxima);
      EXPECT_EQ(maxima[0], at < kLogitBlock ? -2.0F : -kInf);
      EXPECT_EQ(maxima[1], FLT_MAX);
      float sums[2];
      ops->block_sums(logits, maxima, Weighting{.max = FLT_MAX}, sums);
      EXPECT_EQ(sums[0], 0.0F);
      EXPECT_EQ(sums[1], 1.0F);
    }
  }
}

}  // namespace
}  // namespace baton::engine
