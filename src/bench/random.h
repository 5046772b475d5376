// Random numbers that are the same for a seed on every machine and library: workloads can be run
// again. (The distributions of <random> are each library's own.)
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace baton::bench {

/// Scrambles 64 bits; a bijection. Source: the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
constexpr uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

/// A seed for the stream `b` of what has seed `a`.
constexpr uint64_t mix(uint64_t a, uint64_t b) {
  return scramble(scramble(a + 0x9E3779B97F4A7C15U) ^ (b + 0x9E3779B97F4A7C15U));
}

/// SplitMix64. Thread-compatible.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() { return scramble(state_ += 0x9E3779B97F4A7C15U); }
  /// In [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// In [0, n), n >= 1. The bias of n / 2^32 is of no concern here.
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(((next() >> 32) * n) >> 32); }
  /// Mean 1.
  double exponential() { return -std::log1p(-uniform()); }
  /// Mean 0, variance 1. Source: Box and Muller 1958.
  double normal() {
    const double radius = std::sqrt(2 * exponential());
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  uint64_t state_;
};

}  // namespace baton::bench
