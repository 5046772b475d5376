// The random numbers, and what is drawn with them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "engine/naive_sampler.h"
#include "engine/sampler.h"
#include "engine/sampler_case.h"

namespace baton::engine {
namespace {

/// Sum of (observed - expected)² / expected over the bins; about n_bins ± sqrt(2 n_bins) if the
/// distribution is right.
double chi_square(const std::vector<int>& observed, const std::vector<double>& probabilities) {
  int n = 0;
  for (const int count : observed) n += count;
  double sum = 0.0;
  for (size_t i = 0; i < observed.size(); ++i) {
    const double expected = probabilities[i] * n;
    if (expected > 0.0) sum += (observed[i] - expected) * (observed[i] - expected) / expected;
  }
  return sum;
}

TEST(UniformRandom, IsUniformOverPositionsChoicesAndSeedsAndTheirPairs) {
  constexpr int kBins = 16;
  constexpr int kDraws = 200000;
  const auto bin = [](double random) { return static_cast<size_t>(random * kBins); };
  for (int varied = 0; varied < 3; ++varied) {
    const auto draw = [&](int i) {
      return uniform_random(varied == 0 ? static_cast<uint64_t>(i) : 42U, varied == 1 ? i : 0,
                            varied == 2 ? i : 9);
    };
    std::vector<int> pairs(kBins * kBins, 0);
    for (int i = 0; i < kDraws; ++i) ++pairs[bin(draw(i)) * kBins + bin(draw(i + 1))];
    const double sum = chi_square(pairs, std::vector<double>(pairs.size(), 1.0 / (kBins * kBins)));
    EXPECT_GT(sum, 255 - 4 * 22.6) << varied;
    EXPECT_LT(sum, 255 + 4 * 22.6) << varied;
  }
}

TEST(UniformRandom, ArgumentsDontGetMixedUp) {
  EXPECT_NE(uniform_random(0, 1, 2), uniform_random(0, 2, 1));
  EXPECT_NE(uniform_random(1, 0, 2), uniform_random(0, 1, 2));
  EXPECT_NE(uniform_random(1, 0, 0), uniform_random(0, 0, 0));
  EXPECT_GE(uniform_random(0, 0, 0), 0.0);
}

// Seeds that users have written down must go on giving the same texts.
TEST(UniformRandom, IsFixedForever) {
  EXPECT_EQ(std::bit_cast<uint64_t>(uniform_random(0, 0, 0)), 4594165553473289820U);
  EXPECT_EQ(std::bit_cast<uint64_t>(uniform_random(12345, 3, 678)), 4589216816481017928U);
}

TEST(Sampler, DrawsFromTheRightDistribution) {
  const std::vector<float> logits = random_logits(100, 12, 1.5F);
  const SamplingParams variants[] = {
      {.seed = 1},
      {.temperature = 0.5F, .seed = 2},
      {.temperature = 2.0F, .seed = 3},
      {.top_p = 0.8F, .seed = 4},
      {.top_k = 20, .seed = 5},
      {.min_p = 0.1F, .seed = 6},
      {.temperature = 1.3F, .top_p = 0.9F, .top_k = 50, .min_p = 0.01F, .seed = 7}};
  Sampler sampler;
  for (const SamplingParams& params : variants) {
    Case c{.logits = logits, .params = params};
    const std::vector<double> expected = naive_distribution(c.request());
    std::vector<int> n(logits.size(), 0);
    for (int i = 0; i < 20000; ++i) {
      c.choice = i % 4;
      if (c.choice == 0) c.output.push_back(0);
      ++n[static_cast<size_t>(sampler.sample(c.request())->token)];
    }
    const auto kept =
        static_cast<double>(std::ranges::count_if(expected, [](double p) { return p > 0.0; }));
    for (size_t i = 0; i < n.size(); ++i) ASSERT_TRUE(expected[i] > 0.0 || n[i] == 0);
    EXPECT_LT(chi_square(n, expected), kept + 4 * std::sqrt(2 * kept)) << params.seed;
  }
}

}  // namespace
}  // namespace baton::engine
