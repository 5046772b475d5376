#include "linalg/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace baton::linalg {
namespace {

TEST(MakeLinear, RefusesWhatCannotBe) {
  ThreadPool pool({});
  Workspace workspace;
  Context context{KernelSet::kReference, pool, workspace};
  const std::vector<float> data(64 * 2);
  const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
  const auto error = [&](std::vector<MatrixView> stacked) {
    auto made = make_linear(context, KernelClass::kDecode, stacked);
    return made ? "" : made.error().message;
  };
  EXPECT_EQ(error({}), "a linear layer needs a matrix");
  EXPECT_EQ(error({{TensorType::kF32, 0, 64, bytes}}), "a linear layer of 0 x 64 values: empty");
  EXPECT_EQ(error({{TensorType::kF32, 2, 64, nullptr}}), "a linear layer of 2 x 64 values: empty");
  EXPECT_EQ(error({{TensorType::kQ4_0, 1, 48, bytes}}),
            "rows of 48 values: not a multiple of the 32 of a Q4_0 block");
  EXPECT_EQ(error({{TensorType::kF32, 1, 64, bytes}, {TensorType::kF32, 1, 32, bytes}}),
            "matrices with 64 and 32 inputs cannot be stacked");
  EXPECT_EQ(error({{TensorType::kF32, 2, 64, bytes}}), "");
}

TEST(ReferenceLinear, IsTheProductOfTheStackedMatrices) {
  constexpr int kIn = 70;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> a(5 * kIn), b(3 * kIn), x(4 * kIn);
  for (auto* v : {&a, &b, &x}) {
    for (float& f : *v) f = normal(random);
  }
  for (const int n_threads : {1, 2}) {
    ThreadPool pool({n_threads, {}});
    Workspace workspace;
    Context context{KernelSet::kReference, pool, workspace};
    const std::vector<MatrixView> stacked = {
        {TensorType::kF32, 5, kIn, reinterpret_cast<const std::byte*>(a.data())},
        {TensorType::kF32, 3, kIn, reinterpret_cast<const std::byte*>(b.data())}};
    auto linear = make_linear(context, KernelClass::kPrefill, stacked);
    ASSERT_TRUE(linear) << linear.error().message;
    EXPECT_EQ((*linear)->n_in(), kIn);
    EXPECT_EQ((*linear)->n_out(), 8);
    EXPECT_EQ((*linear)->bytes(), size_t{8} * kIn * 4);
    std::vector<float> y(4 * 8);
    (*linear)->apply(context, x.data(), 4, y.data());
    for (int r = 0; r < 4; ++r) {
      for (int o = 0; o < 8; ++o) {
        const float* w =
            o < 5 ? &a[static_cast<size_t>(o * kIn)] : &b[static_cast<size_t>((o - 5) * kIn)];
        double sum = 0;
        double magnitude = 0;
        for (int i = 0; i < kIn; ++i) {
          const double product = double{w[i]} * double{x[static_cast<size_t>(r * kIn + i)]};
          sum += product;
          magnitude += std::fabs(product);
        }
        // At most 5 + 4 + 1 roundings on the way of any product into its sum.
        EXPECT_NEAR(y[static_cast<size_t>(r * 8 + o)], sum, magnitude * 10 * 0x1p-24);
      }
    }
  }
}

}  // namespace
}  // namespace baton::linalg
