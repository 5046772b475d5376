// Every type of weights on every kernel set of the decode class, against sums in double and against
// one another, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "linalg/activations.h"
#include "linalg/block_codec.h"
#include "linalg/linear.h"
#include "linalg/linear_test_data.h"

namespace baton::linalg {
namespace {

std::vector<float> apply(const Linear& linear, KernelSet set, int n_threads, const float* x,
                         int64_t n_rows) {
  Workspace workspace;
  Context context{set, pool_of(n_threads), workspace};
  std::vector<float> y(static_cast<size_t>(n_rows * linear.n_out()), -1.0F);
  linear.apply(context, x, n_rows, y.data());
  return y;
}

std::unique_ptr<Linear> make(KernelSet set, const std::vector<MatrixView>& stacked,
                             int n_threads = 2) {
  Workspace workspace;
  Context context{set, pool_of(n_threads), workspace};
  auto linear = make_linear(context, KernelClass::kDecode, stacked);
  EXPECT_TRUE(linear) << (linear ? "" : linear.error().message);
  return linear ? std::move(*linear) : nullptr;
}

class DecodeLinear : public testing::TestWithParam<TensorType> {};

// What the arithmetic allows one output to be off by: activations are off by half a step of max|x|
// / 16256 each (and the relative rounding of x * inverse and of scale, 3 units); products by the
// roundings of a weight (scale * code + min: 3) and of at most 2 * n_groups float additions.
double error_bound(const float* w, const float* x, int64_t n, TensorType type) {
  double max = 0;
  double weight = 0;
  double product = 0;
  for (int64_t i = 0; i < n; ++i) {
    max = std::max(max, std::fabs(double{x[i]}));
    weight += std::fabs(double{w[i]});
    product += std::fabs(double{w[i]} * double{x[i]});
  }
  const CodeInfo code = code_info(type);
  if (code.group_values == 0) return product * (static_cast<double>(n) / 4 + 4) * 0x1p-24;
  const double n_adds = 2.0 * static_cast<double>(n) / code.group_values;
  // With a min, |scale * code| and |min| may each be larger than their sum.
  const double cancel = code.has_min ? 64 : 1;
  return weight * max / kActivationMax * 0.51 +
         cancel * (product + weight * max * 1e-3) * (n_adds + 8) * 0x1p-24;
}

TEST_P(DecodeLinear, IsTheProductWithinWhatItsArithmeticAllows) {
  const TensorType type = GetParam();
  std::mt19937 random(7);
  constexpr int64_t kIn = 768, kOut = 37, kRows = 6;
  const Matrix m = random_matrix(type, kOut, kIn, random);
  const std::vector<float> x = random_rows(kRows * kIn, random);
  std::vector<float> w(static_cast<size_t>(kOut * kIn));
  dequantize(type, m.bytes.data(), kOut * kIn, w.data());
  for (const KernelSet set : fast_sets()) {
    const auto linear = make(set, {m.view});
    ASSERT_EQ(linear->n_out(), kOut);
    const std::vector<float> y = apply(*linear, set, 2, x.data(), kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t o = 0; o < kOut; ++o) {
        const float* wo = &w[static_cast<size_t>(o * kIn)];
        const float* xr = &x[static_cast<size_t>(r * kIn)];
        double sum = 0;
        for (int64_t i = 0; i < kIn; ++i) sum += double{wo[i]} * double{xr[i]};
        ASSERT_NEAR(y[static_cast<size_t>(r * kOut + o)], sum, error_bound(wo, xr, kIn, type))
            << name(set) << " row " << r << " output " << o;
      }
    }
  }
}

TEST_P(DecodeLinear, EveryKernelSetHasTheSameBits) {
  const TensorType type = GetParam();
  std::mt19937 random(11);
  for (const int64_t n_in : {256, 1536}) {
    for (const int64_t n_out : {1, 16, 100}) {
      const Matrix m = random_matrix(type, n_out, n_in, random);
      const std::vector<float> x = random_rows(9 * n_in, random);
      std::vector<float> first;
      for (const KernelSet set : fast_sets()) {
        const std::vector<float> y = apply(*make(set, {m.view}), set, 2, x.data(), 9);
        if (first.empty()) first = y;
        EXPECT_TRUE(same_bits(y, first)) << name(set) << " " << n_in << " " << n_out;
      }
    }
  }
}

TEST_P(DecodeLinear, ARowIsTheSameAloneAndInAnyBatch) {
  const TensorType type = GetParam();
  std::mt19937 random(13);
  constexpr int64_t kOut = 40, kMaxRows = 70;
  const int64_t n_in = info(type).block_values == 256 ? 512 : 96;
  const Matrix m = random_matrix(type, kOut, n_in, random);
  const std::vector<float> x = random_rows(kMaxRows * n_in, random);
  for (const KernelSet set : fast_sets()) {
    const auto linear = make(set, {m.view});
    std::vector<float> alone;
    for (int64_t r = 0; r < kMaxRows; ++r) {
      const auto y = apply(*linear, set, 1, &x[static_cast<size_t>(r * n_in)], 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (int64_t n = 1; n <= kMaxRows; ++n) {
      for (const int n_threads : {1, 2}) {
        const auto y = apply(*linear, set, n_threads, x.data(), n);
        const std::vector<float> want(alone.begin(), alone.begin() + n * kOut);
        ASSERT_TRUE(same_bits(y, want))
            << name(set) << " " << n << " rows, " << n_threads << " threads";
      }
    }
    // The other rows of a batch, and a row's place in it, do not matter either.
    const auto from_the_middle = apply(*linear, set, 2, &x[static_cast<size_t>(5 * n_in)], 65);
    EXPECT_TRUE(same_bits(from_the_middle, {alone.begin() + 5 * kOut, alone.end()})) << name(set);
  }
}

TEST_P(DecodeLinear, PackedByAnyNumberOfThreads) {
  const TensorType type = GetParam();
  std::mt19937 random(17);
  const Matrix m = random_matrix(type, 83, 256, random);
  const std::vector<float> x = random_rows(256, random);
  for (const KernelSet set : fast_sets()) {
    const auto one = apply(*make(set, {m.view}, 1), set, 3, x.data(), 1);
    const auto three = apply(*make(set, {m.view}, 3), set, 1, x.data(), 1);
    EXPECT_TRUE(same_bits(one, three)) << name(set);
  }
}

TEST_P(DecodeLinear, WeightsTakeAboutTheBytesOfTheFile) {
  const TensorType type = GetParam();
  std::mt19937 random(19);
  const Matrix m = random_matrix(type, 64, 2048, random);
  for (const KernelSet set : fast_sets()) {
    EXPECT_LE(static_cast<double>(make(set, {m.view})->bytes()),
              1.03 * static_cast<double>(m.bytes.size()))
        << name(set);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DecodeLinear, testing::ValuesIn(kAllTypes), TypeName());

TEST(DecodeLinearStack, MixedTypesAreTheirMatricesSideBySide) {
  std::mt19937 random(23);
  constexpr int64_t kIn = 512, kRows = 5;
  std::vector<Matrix> matrices;
  std::vector<MatrixView> views;
  int64_t n_out = 0;
  for (const TensorType type : kAllTypes) {
    matrices.push_back(random_matrix(type, 5 + static_cast<int64_t>(random() % 40), kIn, random));
    n_out += matrices.back().view.n_out;
  }
  for (const Matrix& m : matrices) views.push_back(m.view);
  const std::vector<float> x = random_rows(kRows * kIn, random);
  for (const KernelSet set : fast_sets()) {
    const auto stack = make(set, views);
    ASSERT_EQ(stack->n_out(), n_out);
    const std::vector<float> y = apply(*stack, set, 2, x.data(), kRows);
    int64_t first = 0;
    for (const Matrix& m : matrices) {
      const std::vector<float> part = apply(*make(set, {m.view}), set, 1, x.data(), kRows);
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t o = 0; o < m.view.n_out; ++o) {
          ASSERT_EQ(y[static_cast<size_t>(r * n_out + first + o)],
                    part[static_cast<size_t>(r * m.view.n_out + o)])
              << name(set) << " " << info(m.view.type).name;
        }
      }
      first += m.view.n_out;
    }
  }
}

TEST(DecodeLinearStack, SaysWhatItIs) {
  std::mt19937 random(29);
  const Matrix a = random_matrix(TensorType::kQ5_0, 16, 64, random);
  const Matrix b = random_matrix(TensorType::kQ8_0, 16, 64, random);
  EXPECT_EQ(make(KernelSet::kPortable, {a.view, a.view, b.view})->describe(), "portable Q5_0+Q8_0");
  if (cpu_features().avx2) {
    EXPECT_EQ(make(KernelSet::kAvx2, {a.view, a.view, b.view})->describe(), "avx2 Q5_0+Q8_0");
  }
  if (cpu_features().avx512_vnni) {
    EXPECT_EQ(make(KernelSet::kAvx512, {a.view, a.view, b.view})->describe(),
              "avx512_vnni Q5_0+Q8_0");
  }
}

TEST(DecodeLinearInput, OddRowsAreZeroOrNaNAndHurtNoOther) {
  std::mt19937 random(31);
  constexpr int64_t kIn = 64, kOut = 20;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float odd[] = {0.0F,
                       -0.0F,
                       1e-38F,
                       std::numeric_limits<float>::denorm_min(),
                       kInf,
                       -kInf,
                       std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::max()};
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ8_0}) {
    const Matrix m = random_matrix(type, kOut, kIn, random);
    for (const KernelSet set : fast_sets()) {
      const auto linear = make(set, {m.view});
      for (const float value : odd) {
        std::vector<float> x = random_rows(3 * kIn, random);
        const auto before = apply(*linear, set, 1, x.data(), 3);
        std::fill_n(x.begin() + kIn, kIn, 0.0F);
        x[kIn + 17] = value;
        const auto after = apply(*linear, set, 1, x.data(), 3);
        for (size_t o = 0; o < kOut; ++o) {
          EXPECT_EQ(after[o], before[o]);
          EXPECT_EQ(after[2 * kOut + o], before[2 * kOut + o]);
          if (!std::isfinite(value)) {
            EXPECT_TRUE(std::isnan(after[kOut + o])) << value;
          } else if (std::fabs(value) < 1e-37F) {
            EXPECT_EQ(after[kOut + o], 0.0F) << value;
          }
        }
      }
    }
  }
}

TEST(QuantizeRow, RoundsToTheNearestStepOfTheLargest) {
  std::mt19937 random(37);
  const std::vector<float> x = random_rows(333, random);
  std::vector<int16_t> q(x.size());
  float scale = 0;
  quantize_row(x.data(), 333, q.data(), &scale);
  float max = 0;
  for (const float f : x) max = std::max(max, std::fabs(f));
  EXPECT_FLOAT_EQ(scale, max / kActivationMax);
  int largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::abs(int{q[i]}));
    EXPECT_NEAR(x[i], scale * q[i], scale * 0.502);
  }
  EXPECT_EQ(largest, kActivationMax);
}

}  // namespace
}  // namespace baton::linalg
