// float16 and bfloat16 ↔ float32, in plain C++ (exact one way, round to nearest even the other).
#pragma once

#include <bit>
#include <cstdint>

namespace baton::linalg {

/// IEEE binary16 → binary32; exact. NaNs keep their payload's upper bits.
[[nodiscard]] constexpr float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000U) << 16;
  const uint32_t exponent = (h >> 10) & 0x1FU;
  const uint32_t fraction = h & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  // Subnormal: fraction * 2^-24, exact in float32.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

/// bfloat16 → binary32; exact.
[[nodiscard]] constexpr float bf16_to_float(uint16_t h) {
  return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

/// binary32 → bfloat16, to nearest, ties to even; NaN stays a (quiet) NaN.
[[nodiscard]] constexpr uint16_t float_to_bf16(float f) {
  const auto bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>(bits >> 16 | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

}  // namespace baton::linalg
