#include "linalg/activations.h"

#include <bit>
#include <limits>

namespace baton::linalg {

namespace {

/// How n values are quantised: x[i] * inverse, rounded; 0 if all are to be 0.
struct Scales {
  float scale;
  float inverse;
};

Scales scales_of(const float* x, int64_t n, int most) {
  // Magnitudes compare like their bit patterns, NaN above infinity above all else.
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFU;
    largest = magnitude > largest ? magnitude : largest;
  }
  if (largest >= 0x7F800000U) return {std::numeric_limits<float>::quiet_NaN(), 0.0F};
  const auto max = std::bit_cast<float>(largest);
  if (max < kSmallestActivation) return {0.0F, 0.0F};
  return {max / static_cast<float>(most), static_cast<float>(most) / max};
}

template <typename Integer>
void round_all(const float* x, int64_t n, float inverse, Integer* q) {
  if (inverse == 0.0F) {
    for (int64_t i = 0; i < n; ++i) q[i] = 0;
    return;
  }
  // Adding 1.5 * 2^23 rounds to an integer (to nearest even) that then stands in the low bits.
  constexpr float kMagic = 0x1.8p23F;
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<int32_t>(x[i] * inverse + kMagic);
    q[i] = static_cast<Integer>(bits - std::bit_cast<int32_t>(kMagic));
  }
}

}  // namespace

void quantize_row(const float* x, int64_t n, int16_t* q, float* scale) {
  const Scales scales = scales_of(x, n, kActivationMax);
  *scale = scales.scale;
  round_all(x, n, scales.inverse, q);
}

void quantize_block(const float* x, int8_t* q, float* scale) {
  const Scales scales = scales_of(x, kActivationBlock, kByteActivationMax);
  *scale = scales.scale;
  round_all(x, kActivationBlock, scales.inverse, q);
}

}  // namespace baton::linalg
