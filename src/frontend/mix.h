// Internal to src/frontend: numbers that look random out of numbers that don't.
#pragma once

#include <cstdint>

namespace baton::frontend {

/// Spreads a counter over 64 bits (splitmix64, Steele, Lea, Flood 2014).
[[nodiscard]] constexpr uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace baton::frontend
