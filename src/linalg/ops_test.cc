// Row operations: every kernel set against the formulas, and the same bits in every batch.
#include "linalg/ops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "linalg/half.h"
#include "linalg/row_kernels.h"
#include "linalg/test_sets.h"

namespace baton::linalg {
namespace {

std::vector<float> random_values(size_t n, uint32_t seed, float range = 3.0F) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-range, range);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(random);
  return values;
}

/// |a - b| relative to |b|, or to 1e-30 where b is smaller than any value that matters.
double relative_error(double a, double b) { return std::abs(a - b) / std::max(std::abs(b), 1e-30); }

class OpsTest : public ::testing::TestWithParam<KernelSet> {
 protected:
  OpsTest() : pool_({.n_threads = 2, .cpus = {}}), context_{GetParam(), pool_, workspace_} {}
  ThreadPool pool_;
  Workspace workspace_;
  Context context_;
};

TEST_P(OpsTest, RmsNormFollowsItsFormula) {
  for (const int64_t n : {1, 7, 16, 17, 31, 48, 64, 576, 641}) {
    const int64_t n_rows = 3;
    const auto x = random_values(static_cast<size_t>(n * n_rows), 1);
    const auto weight = random_values(static_cast<size_t>(n), 2);
    std::vector<float> y(x.size());
    rms_norm(context_, x.data(), weight.data(), 1e-5F, n_rows, n, y.data());
    for (int64_t row = 0; row < n_rows; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i)
        sum += double{x[size_t(row * n + i)]} * x[size_t(row * n + i)];
      const double factor = 1 / std::sqrt(sum / double(n) + 1e-5);
      for (int64_t i = 0; i < n; ++i) {
        const double expected = x[size_t(row * n + i)] * factor * weight[size_t(i)];
        EXPECT_LT(relative_error(y[size_t(row * n + i)], expected), 1e-6) << n << " " << i;
      }
    }
    std::vector<float> in_place = x;
    rms_norm(context_, in_place.data(), weight.data(), 1e-5F, n_rows, n, in_place.data());
    EXPECT_EQ(in_place, y);
  }
}

TEST_P(OpsTest, HeadsAreNormedOneByOneAndTheRestIsLeftAlone) {
  const int64_t stride = 100;
  auto data = random_values(3 * stride, 3);
  const auto before = data;
  const auto weight = random_values(24, 4);
  rms_norm_heads(context_,
                 {.data = data.data() + 4, .stride = stride, .n_heads = 2, .head_dim = 24},
                 weight.data(), 1e-6F, 3);
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t i = 0; i < stride; ++i) {
      const auto at = static_cast<size_t>(row * stride + i);
      if (i < 4 || i >= 52) {
        EXPECT_EQ(data[at], before[at]);
        continue;
      }
      std::vector<float> expected(24);
      const int64_t head = (i - 4) / 24;
      rms_norm(context_, before.data() + row * stride + 4 + head * 24, weight.data(), 1e-6F, 1, 24,
               expected.data());
      EXPECT_EQ(data[at], expected[static_cast<size_t>((i - 4) % 24)]);
    }
  }
}

TEST_P(OpsTest, RopeTurnsPairsOfBothStyles) {
  for (const int n_rot : {8, 16, 40, 64, 256}) {
    const int head_dim = n_rot + 8;
    std::vector<double> frequencies;
    for (int i = 0; i < n_rot / 2; ++i) frequencies.push_back(std::pow(1e4, -2.0 * i / n_rot));
    const RopeTable table(frequencies, 50);
    ASSERT_EQ(table.n_rot(), n_rot);
    for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalf}) {
      const std::vector<int> positions = {0, 49, 7};
      const size_t stride = static_cast<size_t>(2 * head_dim + 3);
      auto data = random_values(3 * stride, 5);
      const auto before = data;
      rope(context_, table, style, positions,
           {.data = data.data(), .stride = int64_t(stride), .n_heads = 2, .head_dim = head_dim});
      auto expected = before;
      for (size_t row = 0; row < 3; ++row) {
        for (size_t head = 0; head < 2; ++head) {
          for (size_t i = 0; i < frequencies.size(); ++i) {
            const size_t base = row * stride + head * size_t(head_dim);
            const size_t a = base + (style == RopeStyle::kHalf ? i : 2 * i);
            const size_t b =
                base + (style == RopeStyle::kHalf ? i + frequencies.size() : 2 * i + 1);
            const double angle = positions[row] * frequencies[i];
            expected[a] = float(before[a] * std::cos(angle) - before[b] * std::sin(angle));
            expected[b] = float(before[a] * std::sin(angle) + before[b] * std::cos(angle));
          }
        }
      }
      for (size_t i = 0; i < data.size(); ++i) ASSERT_NEAR(data[i], expected[i], 1e-6) << n_rot;
    }
  }
}

TEST_P(OpsTest, ActivationsAreAccurateOverTheirWholeRange) {
  std::vector<float> gate;
  for (float g = -120.0F; g < 120.0F; g += 0.037F) gate.push_back(g);
  for (float g = 1e-20F; g < 1e6F; g *= 1.7F) gate.insert(gate.end(), {g, -g});
  const size_t n = gate.size();
  std::vector<float> gate_up = gate;
  gate_up.resize(2 * n, 1.0F);
  std::vector<float> y(n);
  gated_activation(context_, GatedActivation::kSilu, gate_up.data(), 1, int64_t(n), y.data());
  for (size_t i = 0; i < n; ++i) {
    const double g = gate[i];
    if (g < -80) {
      EXPECT_NEAR(y[i], 0, 1e-30);
    } else {
      EXPECT_LT(relative_error(y[i], g / (1 + std::exp(-g))), 1e-6) << g;
    }
  }
  gated_activation(context_, GatedActivation::kGeluTanh, gate_up.data(), 1, int64_t(n), y.data());
  for (size_t i = 0; i < n; ++i) {
    const double g = gate[i];
    const double expected =
        0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
    // Where 1 + tanh is a small difference (of the formula as written): absolute, else relative.
    EXPECT_LT(std::abs(y[i] - expected), 1e-6 * std::max(std::abs(expected), 0.2)) << g;
  }
}

TEST_P(OpsTest, ActivationMultipliesTheUpHalf) {
  const std::vector<float> gate_up = {1, 2, 10, -100};
  std::vector<float> y(2);
  gated_activation(context_, GatedActivation::kSilu, gate_up.data(), 1, 2, y.data());
  EXPECT_NEAR(y[0], 10 / (1 + std::exp(-1.0)), 1e-5);
  EXPECT_NEAR(y[1], -200 / (1 + std::exp(-2.0)), 1e-4);
}

TEST_P(OpsTest, NanStaysVisible) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gate_up = {nan, 1, 1, 1};
  std::vector<float> y(2);
  for (const auto activation : {GatedActivation::kSilu, GatedActivation::kGeluTanh}) {
    gated_activation(context_, activation, gate_up.data(), 1, 2, y.data());
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_FALSE(std::isnan(y[1]));
  }
}

TEST_P(OpsTest, RowsHaveTheSameBitsInEveryBatch) {
  const int64_t n = 1000;
  const int64_t n_rows = 70;  // enough for the pool
  const auto x = random_values(static_cast<size_t>(n_rows * 2 * n), 6);
  std::vector<float> all(static_cast<size_t>(n_rows * n));
  std::vector<float> one(static_cast<size_t>(n));
  gated_activation(context_, GatedActivation::kGeluTanh, x.data(), n_rows, n, all.data());
  for (int64_t row = 0; row < n_rows; ++row) {
    gated_activation(context_, GatedActivation::kGeluTanh, x.data() + row * 2 * n, 1, n,
                     one.data());
    EXPECT_EQ(0, std::memcmp(one.data(), all.data() + row * n, sizeof(float) * size_t(n)));
  }
  rms_norm(context_, x.data(), x.data(), 1e-5F, n_rows, n, all.data());
  for (int64_t row = 0; row < n_rows; ++row) {
    rms_norm(context_, x.data() + row * n, x.data(), 1e-5F, 1, n, one.data());
    EXPECT_EQ(0, std::memcmp(one.data(), all.data() + row * n, sizeof(float) * size_t(n)));
  }
}

TEST_P(OpsTest, AddAndEmbed) {
  auto x = random_values(35, 7);
  const auto y = random_values(35, 8);
  auto expected = x;
  for (size_t i = 0; i < x.size(); ++i) expected[i] += y[i];
  add_in_place(context_, x.data(), y.data(), 5, 7);
  EXPECT_EQ(x, expected);

  const auto table = random_values(4 * 20, 9);
  const std::vector<TokenId> tokens = {3, 0, 3};
  std::vector<float> out(3 * 20);
  const MatrixView view = {TensorType::kF32, 4, 20,
                           reinterpret_cast<const std::byte*>(table.data())};
  for (const float scale : {1.0F, 25.25F}) {
    embed(context_, view, tokens, scale, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i], table[size_t(tokens[i / 20]) * 20 + i % 20] * scale);
    }
  }
}

TEST_P(OpsTest, Bf16RoundsToNearestEven) {
  std::vector<float> x = random_values(1000, 10, 1e3F);
  const auto inf = std::numeric_limits<float>::infinity();
  // Ties of both kinds, overflow, signed zero, infinities, a NaN whose payload is in the low bits
  // only.
  x.insert(x.end(), {1.00390625F, 1.01171875F, 3.4e38F, -0.0F, inf, -inf,
                     std::bit_cast<float>(0x7F800001U)});
  std::vector<uint16_t> h(x.size());
  const RowKernels& kernels = row_kernels(GetParam());
  kernels.to_bf16(x.data(), int64_t(x.size()), h.data());
  std::vector<float> back(x.size());
  kernels.from_bf16(h.data(), int64_t(x.size()), back.data());
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(h[i], float_to_bf16(x[i])) << x[i];
    EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), uint32_t(h[i]) << 16);
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, OpsTest, ::testing::ValuesIn(runnable_sets()), SetName());

}  // namespace
}  // namespace baton::linalg
