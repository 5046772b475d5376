// Linear on activations of 8 bits (apply_int8): every quantised type on every kernel set that has
// them, against sums in double and against one another, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "linalg/activations.h"
#include "linalg/block_codec.h"
#include "linalg/linear.h"
#include "linalg/linear_test_data.h"

namespace baton::linalg {
namespace {

std::vector<KernelSet> int8_sets() {
  std::vector<KernelSet> sets;
  for (const KernelSet set : fast_sets()) {
    if (has_int8_activations(set)) sets.push_back(set);
  }
  return sets;
}

std::vector<float> apply(const Linear& linear, KernelSet set, int n_threads, const float* x,
                         int64_t n_rows) {
  Workspace workspace;
  Context context{set, pool_of(n_threads), workspace};
  std::vector<float> y(static_cast<size_t>(n_rows * linear.n_out()), -1.0F);
  linear.apply_int8(context, x, n_rows, y.data());
  return y;
}

std::unique_ptr<Linear> make(KernelSet set, const std::vector<MatrixView>& stacked) {
  Workspace workspace;
  Context context{set, pool_of(2), workspace};
  auto linear = make_linear(context, KernelClass::kDecode, stacked);
  EXPECT_TRUE(linear) << (linear ? "" : linear.error().message);
  return linear ? std::move(*linear) : nullptr;
}

class Int8Linear : public testing::TestWithParam<TensorType> {};

// What the arithmetic allows one output to be off by: an activation is off by half a step of its
// block's max|x| / 127, and by the roundings of x * inverse and of the scale; what is summed by the
// roundings of a weight and of two float operations for each group, times what cancels.
double error_bound(const float* w, const float* x, int64_t n, TensorType type) {
  double steps = 0;
  double product = 0;
  for (int64_t b = 0; b < n; b += kActivationBlock) {
    double max = 0;
    double weight = 0;
    for (int64_t i = b; i < b + kActivationBlock; ++i) {
      max = std::max(max, std::fabs(double{x[i]}));
      weight += std::fabs(double{w[i]});
    }
    steps += weight * max / kByteActivationMax * 0.5001;
    product += weight * max;
  }
  const CodeInfo code = code_info(type);
  const double n_adds = 2.0 * static_cast<double>(n) / code.group_values;
  // With a min, |scale * code| and |min| may each be larger than their sum.
  const double cancel = code.has_min ? 64 : 1;
  return steps + cancel * product * (n_adds + 8) * 0x1p-24;
}

TEST_P(Int8Linear, IsTheProductWithinWhatItsArithmeticAllows) {
  const TensorType type = GetParam();
  std::mt19937 random(7);
  constexpr int64_t kIn = 768, kOut = 37, kRows = 6;
  const Matrix m = random_matrix(type, kOut, kIn, random);
  const std::vector<float> x = random_rows(kRows * kIn, random);
  std::vector<float> w(static_cast<size_t>(kOut * kIn));
  dequantize(type, m.bytes.data(), kOut * kIn, w.data());
  for (const KernelSet set : int8_sets()) {
    const std::vector<float> y = apply(*make(set, {m.view}), set, 2, x.data(), kRows);
    double error = 0;
    double magnitude = 0;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t o = 0; o < kOut; ++o) {
        const float* wo = &w[static_cast<size_t>(o * kIn)];
        const float* xr = &x[static_cast<size_t>(r * kIn)];
        double sum = 0;
        double squares = 0;
        for (int64_t i = 0; i < kIn; ++i) {
          const double term = double{wo[i]} * double{xr[i]};
          sum += term;
          squares += term * term;
        }
        const double off = double{y[static_cast<size_t>(r * kOut + o)]} - sum;
        ASSERT_LE(std::fabs(off), error_bound(wo, xr, kIn, type))
            << name(set) << " row " << r << " output " << o;
        error += off * off;
        magnitude += squares;
      }
    }
    // Errors of single activations are independent: most of them cancel. An outlier of 30 makes
    // the step of its block as large as a tenth of the other values.
    EXPECT_LT(std::sqrt(error / magnitude), 0.03) << name(set);
  }
}

TEST_P(Int8Linear, EveryKernelSetHasTheSameBits) {
  const TensorType type = GetParam();
  std::mt19937 random(11);
  for (const int64_t n_in : {256, 1536}) {
    for (const int64_t n_out : {1, 16, 100}) {
      const Matrix m = random_matrix(type, n_out, n_in, random);
      const std::vector<float> x = random_rows(15 * n_in, random);
      std::vector<float> first;
      for (const KernelSet set : int8_sets()) {
        const std::vector<float> y = apply(*make(set, {m.view}), set, 2, x.data(), 15);
        if (first.empty()) first = y;
        EXPECT_TRUE(same_bits(y, first)) << name(set) << " " << n_in << " " << n_out;
      }
    }
  }
}

TEST_P(Int8Linear, ARowIsTheSameAloneAndInAnyBatch) {
  const TensorType type = GetParam();
  std::mt19937 random(13);
  constexpr int64_t kOut = 120, kMaxRows = 70;
  const int64_t n_in = info(type).block_values == 256 ? 512 : 96;
  const Matrix m = random_matrix(type, kOut, n_in, random);
  const std::vector<float> x = random_rows(kMaxRows * n_in, random);
  for (const KernelSet set : int8_sets()) {
    const auto linear = make(set, {m.view});
    std::vector<float> alone;
    for (int64_t r = 0; r < kMaxRows; ++r) {
      const auto y = apply(*linear, set, 1, &x[static_cast<size_t>(r * n_in)], 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (int64_t n = 1; n <= kMaxRows; ++n) {
      for (const int n_threads : {1, 2, 3}) {
        const auto y = apply(*linear, set, n_threads, x.data(), n);
        const std::vector<float> want(alone.begin(), alone.begin() + n * kOut);
        ASSERT_TRUE(same_bits(y, want))
            << name(set) << " " << n << " rows, " << n_threads << " threads";
      }
    }
    const auto from_the_middle = apply(*linear, set, 2, &x[static_cast<size_t>(5 * n_in)], 65);
    EXPECT_TRUE(same_bits(from_the_middle, {alone.begin() + 5 * kOut, alone.end()})) << name(set);
  }
}

// apply() of the same weights is what it was.
TEST_P(Int8Linear, LeavesTheOtherActivationsAsTheyAre) {
  const TensorType type = GetParam();
  std::mt19937 random(17);
  const Matrix m = random_matrix(type, 40, 256, random);
  const std::vector<float> x = random_rows(9 * 256, random);
  for (const KernelSet set : int8_sets()) {
    const auto linear = make(set, {m.view});
    Workspace workspace;
    Context context{set, pool_of(1), workspace};
    std::vector<float> before(9 * 40), after(9 * 40);
    linear->apply(context, x.data(), 9, before.data());
    const std::vector<float> bytes = apply(*linear, set, 1, x.data(), 9);
    linear->apply(context, x.data(), 9, after.data());
    EXPECT_TRUE(same_bits(before, after));
    EXPECT_FALSE(same_bits(before, bytes));
  }
}

constexpr TensorType kQuantized[] = {TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0,
                                     TensorType::kQ5_1, TensorType::kQ8_0, TensorType::kQ4_K,
                                     TensorType::kQ5_K, TensorType::kQ6_K};
INSTANTIATE_TEST_SUITE_P(Types, Int8Linear, testing::ValuesIn(kQuantized), TypeName());

TEST(Int8LinearStack, MixedTypesAreTheirMatricesSideBySide) {
  std::mt19937 random(23);
  constexpr int64_t kIn = 512, kRows = 7;
  std::vector<Matrix> matrices;
  std::vector<MatrixView> views;
  int64_t n_out = 0;
  for (const TensorType type : kAllTypes) {
    matrices.push_back(random_matrix(type, 5 + static_cast<int64_t>(random() % 70), kIn, random));
    n_out += matrices.back().view.n_out;
  }
  for (const Matrix& m : matrices) views.push_back(m.view);
  const std::vector<float> x = random_rows(kRows * kIn, random);
  for (const KernelSet set : int8_sets()) {
    const std::vector<float> y = apply(*make(set, views), set, 2, x.data(), kRows);
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

TEST(Int8LinearStack, SaysWhatItIs) {
  std::mt19937 random(29);
  const Matrix a = random_matrix(TensorType::kQ5_0, 16, 64, random);
  const auto linear = make(KernelSet::kPortable, {a.view});
  EXPECT_EQ(linear->describe(), "portable Q5_0");
  EXPECT_EQ(linear->describe_int8(), "portable Q5_0 on int8 activations");
}

TEST(Int8LinearStack, ServesThePrefillClassOfQuantisedWeights) {
  std::mt19937 random(31);
  const Matrix q = random_matrix(TensorType::kQ4_0, 16, 64, random);
  const Matrix f = random_matrix(TensorType::kF16, 16, 64, random);
  const std::vector<MatrixView> quantized = {q.view};
  const std::vector<MatrixView> mixed = {q.view, f.view};
  for (const KernelSet set : {KernelSet::kPortable, KernelSet::kAvx512}) {
    EXPECT_TRUE(has_int8_activations(set));
    EXPECT_TRUE(classes_agree(set, quantized, ActivationType::kInt8));
    EXPECT_FALSE(classes_agree(set, mixed, ActivationType::kInt8));
  }
  for (const KernelSet set : {KernelSet::kAvx2, KernelSet::kAmx}) {
    EXPECT_FALSE(has_int8_activations(set));
    EXPECT_FALSE(classes_agree(set, quantized, ActivationType::kInt8));
  }
  EXPECT_FALSE(has_int8_activations(KernelSet::kReference));
  EXPECT_FALSE(classes_agree(KernelSet::kPortable, quantized));
}

// Of odd values only their own block's products are lost, or the whole row where they aren't
// finite.
TEST(Int8LinearInput, OddValuesAreZeroOrNaNAndHurtNoOtherRow) {
  std::mt19937 random(31);
  constexpr int64_t kIn = 7 * 32, kOut = 20;
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
    for (const float value : odd) {
      std::vector<float> x = random_rows(3 * kIn, random);
      std::vector<float> first;
      for (const KernelSet set : int8_sets()) {
        const auto linear = make(set, {m.view});
        const auto before = apply(*linear, set, 1, x.data(), 3);
        std::vector<float> changed = x;
        std::fill_n(changed.begin() + kIn, kIn, 0.0F);
        changed[kIn + 197] = value;
        const auto after = apply(*linear, set, 1, changed.data(), 3);
        if (first.empty()) first = after;
        for (size_t o = 0; o < kOut; ++o) {
          EXPECT_EQ(after[o], before[o]);
          EXPECT_EQ(after[2 * kOut + o], before[2 * kOut + o]);
          if (!std::isfinite(value)) {
            EXPECT_TRUE(std::isnan(after[kOut + o])) << value;
          } else if (std::fabs(value) < 1e-37F) {
            EXPECT_EQ(after[kOut + o], 0.0F) << value;
          } else {
            EXPECT_EQ(after[kOut + o], first[kOut + o]) << value;
          }
        }
      }
    }
  }
}

TEST(QuantizeBlock, RoundsToTheNearestStepOfItsLargest) {
  std::mt19937 random(37);
  const std::vector<float> x = random_rows(100 * kActivationBlock, random);
  for (int b = 0; b < 100; ++b) {
    const float* block = &x[static_cast<size_t>(b * kActivationBlock)];
    int8_t q[kActivationBlock];
    float scale = 0;
    quantize_block(block, q, &scale);
    float max = 0;
    for (int i = 0; i < kActivationBlock; ++i) max = std::max(max, std::fabs(block[i]));
    EXPECT_FLOAT_EQ(scale, max / kByteActivationMax);
    int largest = 0;
    for (int i = 0; i < kActivationBlock; ++i) {
      largest = std::max(largest, std::abs(int{q[i]}));
      EXPECT_NEAR(block[i], scale * static_cast<float>(q[i]), scale * 0.5001F);
    }
    EXPECT_EQ(largest, kByteActivationMax);
  }
}

}  // namespace
}  // namespace baton::linalg
