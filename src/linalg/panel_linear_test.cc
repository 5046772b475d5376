// The prefill class of Linear against float32 sums, and the same bits in every batch.
#include "linalg/panel_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "linalg/half.h"
#include "linalg/test_sets.h"

namespace baton::linalg {
namespace {

/// The sets that make_linear sends here, and AMX's arithmetic (bf16) even where there is no AMX:
/// oneDNN then multiplies bf16 without matrix units.
/// The first set caps oneDNN for the process, so the highest comes first (and CMakeLists.txt runs
/// the portable ones in a process of their own).
std::vector<KernelSet> panel_sets() {
  std::vector<KernelSet> sets;
  if (cpu_features().avx512_bf16) sets.push_back(KernelSet::kAmx);
  if (cpu_features().avx512) sets.push_back(KernelSet::kAvx512);
  if (cpu_features().avx2) sets.push_back(KernelSet::kAvx2);
  sets.push_back(KernelSet::kPortable);
  return sets;
}

std::vector<float> random_values(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

MatrixView view(const std::vector<float>& values, int64_t n_in) {
  return {TensorType::kF32, static_cast<int64_t>(values.size()) / n_in, n_in,
          reinterpret_cast<const std::byte*>(values.data())};
}

size_t n_process_threads() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    ++n;
  }
  return n;
}

class PanelLinearTest : public ::testing::TestWithParam<KernelSet> {
 protected:
  void SetUp() override {
    static const KernelSet first = GetParam();
    if (first == KernelSet::kPortable && GetParam() == KernelSet::kAmx) {
      GTEST_SKIP() << "skipped: this process has capped oneDNN for the portable kernels";
    }
  }
  std::unique_ptr<Linear> make(ThreadPool& pool, std::span<const MatrixView> stacked) {
    Context context{GetParam(), pool, workspace_};
    auto linear = make_panel_linear(context, stacked);
    EXPECT_TRUE(linear) << linear.error().message;
    return std::move(*linear);
  }
  std::vector<float> apply(const Linear& linear, ThreadPool& pool, const float* x, int64_t n_rows) {
    Context context{GetParam(), pool, workspace_};
    std::vector<float> y(static_cast<size_t>(n_rows * linear.n_out()), NAN);
    linear.apply(context, x, n_rows, y.data());
    return y;
  }

  ThreadPool one_{{.n_threads = 1, .cpus = {}}};
  ThreadPool two_{{.n_threads = 2, .cpus = {}}};
  Workspace workspace_;
};

TEST_P(PanelLinearTest, EqualsTheSumOverRoundedInputs) {
  struct Shape {
    int64_t n_in, n_out1, n_out2, n_rows;
  };
  // Outputs below, at and above whole tiles, stacks that cut through a tile, odd inputs.
  for (const Shape s : {Shape{64, 64, 64, 64}, Shape{32, 1, 2, 1}, Shape{96, 70, 300, 129},
                        Shape{576, 576, 384, 65}, Shape{33, 200, 57, 3}}) {
    const auto a = random_values(s.n_in * s.n_out1, 1);
    const auto b = random_values(s.n_in * s.n_out2, 2);
    const auto x = random_values(s.n_in * s.n_rows, 3);
    const std::vector<MatrixView> stacked = {view(a, s.n_in), view(b, s.n_in)};
    const auto linear = make(two_, stacked);
    ASSERT_EQ(linear->n_in(), s.n_in);
    ASSERT_EQ(linear->n_out(), s.n_out1 + s.n_out2);
    EXPECT_GE(linear->bytes(), static_cast<size_t>(s.n_in * linear->n_out()) * 2);
    const auto y = apply(*linear, two_, x.data(), s.n_rows);
    const bool rounds_x = GetParam() == KernelSet::kAmx;
    for (int64_t r = 0; r < s.n_rows; ++r) {
      for (int64_t o = 0; o < linear->n_out(); ++o) {
        const float* w =
            o < s.n_out1 ? &a[size_t(o * s.n_in)] : &b[size_t((o - s.n_out1) * s.n_in)];
        double expected = 0;
        for (int64_t i = 0; i < s.n_in; ++i) {
          const float xi = x[size_t(r * s.n_in + i)];
          expected += double{bf16_to_float(float_to_bf16(w[i]))} *
                      (rounds_x ? bf16_to_float(float_to_bf16(xi)) : xi);
        }
        ASSERT_NEAR(y[size_t(r * linear->n_out() + o)], expected, 2e-6 * double(s.n_in))
            << linear->describe() << " row " << r << " output " << o;
      }
    }
  }
}

TEST_P(PanelLinearTest, SameBitsInEveryBatchAndNumberOfThreads) {
  const int64_t n_in = 192;
  const int64_t n_rows = 300;
  for (const int64_t n_out : {int64_t{320}, int64_t{70}}) {
    const auto w = random_values(n_in * n_out, 4);
    const auto x = random_values(n_in * n_rows, 5);
    const std::vector<MatrixView> stacked = {view(w, n_in)};
    const auto linear = make(two_, stacked);
    const auto all = apply(*linear, two_, x.data(), n_rows);
    EXPECT_EQ(all, apply(*make(one_, stacked), one_, x.data(), n_rows));
    for (const int64_t chunk : {1, 3, 16, 17, 64, 65, 200}) {
      for (int64_t begin = 0; begin < n_rows; begin += chunk) {
        const int64_t n = std::min(chunk, n_rows - begin);
        const auto y = apply(*linear, begin % 2 == 0 ? one_ : two_, x.data() + begin * n_in, n);
        ASSERT_EQ(0, std::memcmp(y.data(), all.data() + begin * n_out, y.size() * sizeof(float)))
            << "chunks of " << chunk << " at " << begin;
      }
    }
  }
}

TEST_P(PanelLinearTest, OneDnnStartsNoThreadsOfItsOwn) {
  const auto w = random_values(512 * 512, 6);
  const auto x = random_values(512 * 256, 7);
  const std::vector<MatrixView> stacked = {view(w, 512)};
  const size_t before = n_process_threads();
  const auto linear = make(two_, stacked);
  apply(*linear, two_, x.data(), 256);
  apply(*linear, one_, x.data(), 256);
  EXPECT_EQ(n_process_threads(), before);
}

TEST_P(PanelLinearTest, SaysWhatItIs) {
  const auto w = random_values(64 * 64, 8);
  const auto text = make(one_, std::vector<MatrixView>{view(w, 64)})->describe();
  EXPECT_EQ(text.rfind("onednn ", 0), 0U) << text;
  EXPECT_EQ(text.find("bf16 weights") == std::string::npos, GetParam() == KernelSet::kAmx) << text;
}

INSTANTIATE_TEST_SUITE_P(Sets, PanelLinearTest, ::testing::ValuesIn(panel_sets()), SetName());

}  // namespace
}  // namespace baton::linalg
