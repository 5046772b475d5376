#include "linalg/activations.h"

#include <bit>
#include <limits>

namespace baton::linalg {

void quantize_row(const float* x, int64_t n, int16_t* q, float* scale) {
  // Magnitudes compare like their bit patterns, NaN above infinity above all else.
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFU;
    largest = magnitude > largest ? magnitude : largest;
  }
  const auto max = std::bit_cast<float>(largest);
  const bool finite = largest < 0x7F800000U;
  if (!finite || max < kSmallestActivation) {
    *scale = finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
    for (int64_t i = 0; i < n; ++i) q[i] = 0;
    return;
  }
  *scale = max / static_cast<float>(kActivationMax);
  const float inverse = static_cast<float>(kActivationMax) / max;
  // Adding 1.5 * 2^23 rounds to an integer (to nearest even) that then stands in the low bits.
  constexpr float kMagic = 0x1.8p23F;
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<int32_t>(x[i] * inverse + kMagic);
    q[i] = static_cast<int16_t>(bits - std::bit_cast<int32_t>(kMagic));
  }
}

}  // namespace baton::linalg
