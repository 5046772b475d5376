#include "engine/logit_ops.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

// Compiled with -ffp-contract=off (CMakeLists.txt): the bodies below are built once for each
// instruction set and must round alike in all of them.
#define BATON_INLINE inline __attribute__((always_inline))

namespace baton::engine {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// exp(x) for x in [−reach, 0], 0 below (and for NaN); |relative error| < 2e-7.
/// Source: Cephes expf: x = n ln 2 + r with |r| ≤ ln 2 / 2, a polynomial for exp(r), n into the
/// exponent.
BATON_INLINE float exp_from(float x, float reach) {
  constexpr float kRound =
      12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  const bool counts = x >= -reach;
  const float y = counts ? x : 0.0F;
  const float shifted = y * 1.44269504088896341F + kRound;
  const float n = shifted - kRound;
  const float r = (y - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  // n ≥ −126: the factor 2^n is a normal number.
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const float scaled = p * std::bit_cast<float>((exponent + 127) << 23);
  return counts ? scaled : 0.0F;
}

/// values [kLogitBlock] = the logits from `begin` on, filled up with −∞.
BATON_INLINE void load_block(std::span<const float> logits, size_t begin, float* values) {
  const size_t count = std::min<size_t>(kLogitBlock, logits.size() - begin);
  for (size_t i = 0; i < count; ++i) values[i] = logits[begin + i];
  for (size_t i = count; i < kLogitBlock; ++i) values[i] = kMinusInfinity;
}

// Reductions fold the upper half of a block onto the lower one again and again: a fixed order that
// every compiler turns into whole vectors.

BATON_INLINE void block_maxima_body(std::span<const float> logits, float* maxima) {
  for (size_t begin = 0; begin < logits.size(); begin += kLogitBlock) {
    float values[kLogitBlock];
    load_block(logits, begin, values);
    int32_t any_nan = 0;
    for (int i = 0; i < kLogitBlock; ++i) any_nan |= values[i] != values[i] ? 1 : 0;
    for (int half = kLogitBlock / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) {
        values[i] = values[i] > values[i + half] ? values[i] : values[i + half];
      }
    }
    const float max = values[0] > FLT_MAX ? FLT_MAX : values[0];
    *maxima++ = any_nan != 0 ? std::numeric_limits<float>::quiet_NaN() : max;
  }
}

BATON_INLINE void block_sums_body(std::span<const float> logits, const float* maxima,
                                  const Weighting& weighting, float* sums) {
  const Weighting w = weighting;
  for (size_t begin = 0; begin < logits.size(); begin += kLogitBlock) {
    if (w.exponent(*maxima++) < -w.reach) {
      *sums++ = 0.0F;
      continue;
    }
    float values[kLogitBlock];
    load_block(logits, begin, values);
    for (int i = 0; i < kLogitBlock; ++i) values[i] = exp_from(w.exponent(values[i]), w.reach);
    for (int half = kLogitBlock / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) values[i] += values[i + half];
    }
    *sums++ = values[0];
  }
}

#define BATON_LOGIT_OPS(suffix, attributes)                                               \
  attributes void block_maxima_##suffix(std::span<const float> logits, float* maxima) {   \
    block_maxima_body(logits, maxima);                                                    \
  }                                                                                       \
  attributes void block_sums_##suffix(std::span<const float> logits, const float* maxima, \
                                      const Weighting& w, float* sums) {                  \
    block_sums_body(logits, maxima, w, sums);                                             \
  }                                                                                       \
  constexpr LogitOps k_##suffix{block_maxima_##suffix, block_sums_##suffix};

BATON_LOGIT_OPS(portable, )
BATON_LOGIT_OPS(avx2, __attribute__((target("avx2"))))
#if defined(__clang__)
BATON_LOGIT_OPS(avx512, __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))))
#else
BATON_LOGIT_OPS(avx512, __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,"
                                              "prefer-vector-width=512"))))
#endif
#undef BATON_LOGIT_OPS

}  // namespace

float Weighting::weight(float logit) const { return exp_from(exponent(logit), reach); }

const LogitOps& logit_ops(const CpuFeatures& cpu) {
  if (cpu.avx512) return k_avx512;
  return cpu.avx2 ? k_avx2 : k_portable;
}

}  // namespace baton::engine
