// Weights and rows at random for the tests of the decode class's Linear and of its 8-bit
// activations.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "base/thread_pool.h"
#include "linalg/half.h"
#include "linalg/linear.h"

namespace baton::linalg {

inline constexpr TensorType kAllTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBF16,
                                           TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0,
                                           TensorType::kQ5_1, TensorType::kQ8_0, TensorType::kQ4_K,
                                           TensorType::kQ5_K, TensorType::kQ6_K};

inline std::vector<KernelSet> fast_sets() {
  std::vector<KernelSet> sets = {KernelSet::kPortable};
  for (const KernelSet set : {KernelSet::kAvx2, KernelSet::kAvx512, KernelSet::kAmx}) {
    if (choose_kernels(name(set), cpu_features())) sets.push_back(set);
  }
  return sets;
}

inline uint16_t to_half(
    float f) {  // by search: exactness is half.h's business, here any near value will do
  uint16_t best = 0;
  for (uint16_t h = 0; h < 0x7C00; ++h) {
    if (std::fabs(half_to_float(h) - std::fabs(f)) < std::fabs(half_to_float(best) - std::fabs(f)))
      best = h;
  }
  return static_cast<uint16_t>(best | (f < 0 ? 0x8000U : 0U));
}

/// A matrix with random codes and scales of ordinary sizes, as a file would hold it.
struct Matrix {
  MatrixView view;
  std::vector<std::byte> bytes;
};

// Offsets of the float16 values in a block of each type (-1: none).
inline std::pair<int, int> half_offsets(TensorType type) {
  switch (type) {
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return {0, 2};
    case TensorType::kQ6_K:
      return {208, -1};
    default:
      return {0, -1};
  }
}

inline Matrix random_matrix(TensorType type, int64_t n_out, int64_t n_in, std::mt19937& random) {
  Matrix m;
  const TensorTypeInfo& geometry = info(type);
  m.bytes.resize(row_bytes(type, n_in) * static_cast<size_t>(n_out));
  std::normal_distribution<float> normal;
  if (geometry.block_values == 1) {
    for (size_t i = 0; i < m.bytes.size(); i += static_cast<size_t>(geometry.block_bytes)) {
      const float f = normal(random);
      const uint16_t h = float_to_bf16(f);
      // A random float16: sign, exponent around that of 1, fraction.
      const auto half = static_cast<uint16_t>((random() & 0x83FFU) | (12 + random() % 4) << 10);
      if (type == TensorType::kF32) std::memcpy(&m.bytes[i], &f, 4);
      if (type == TensorType::kBF16) std::memcpy(&m.bytes[i], &h, 2);
      if (type == TensorType::kF16) std::memcpy(&m.bytes[i], &half, 2);
    }
  } else {
    std::vector<uint16_t> halves;
    for (int i = 0; i < 64; ++i) halves.push_back(to_half(0.01F * normal(random)));
    for (auto& b : m.bytes) b = static_cast<std::byte>(random());
    const auto [first, second] = half_offsets(type);
    for (size_t i = 0; i < m.bytes.size(); i += static_cast<size_t>(geometry.block_bytes)) {
      std::memcpy(&m.bytes[i + static_cast<size_t>(first)], &halves[random() % 64], 2);
      if (second >= 0)
        std::memcpy(&m.bytes[i + static_cast<size_t>(second)], &halves[random() % 64], 2);
    }
  }
  m.view = {type, n_out, n_in, m.bytes.data()};
  return m;
}

inline std::vector<float> random_rows(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& f : x) f = normal(random) * (random() % 97 == 0 ? 30.0F : 1.0F);  // with outliers
  return x;
}

inline ThreadPool& pool_of(int n_threads) {
  static ThreadPool one({1, {}}), two({2, {}}), three({3, {}});
  return n_threads == 1 ? one : n_threads == 2 ? two : three;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// For INSTANTIATE_TEST_SUITE_P: names a case by its type. `Info` is
/// testing::TestParamInfo<TensorType>.
struct TypeName {
  template <typename Info>
  std::string operator()(const Info& param) const {
    return std::string(info(param.param).name);
  }
};

}  // namespace baton::linalg
