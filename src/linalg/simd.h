// Sixteen float32 lanes: one source for every instruction set, on vectors that simd_vector.h or
// simd_pair.h defines.
//
// Only for the files that are compiled once for each instruction set (*_kernels.inc). Everything
// here has internal linkage, and those files use no inline functions of other headers: a copy
// compiled for AVX-512 must never be what the linker picks for a CPU without it.
//
// What both define, beside the operators + - * / & | << >> < > >= == of each lane:
//   fma                        a * b + c with one rounding where the instruction set has it.
//                              Explicit, because the compiler must not choose (the library is built
//                              with -ffp-contract=off): two shapes of a loop give the same bits
//   swap_halves … swap_ones    lane i is that of i ^ 8, 4, 2, 1
//   interleave_low, _high      a0 b0 a1 b1 … of the first, of the last eight lanes of two vectors
//   even_lanes, odd_lanes      of two vectors one after the other: the reverse
//   join_halves … join_ones    the four steps that turn 16 vectors into the vector of their sums:
//                              each adds the halves (quarters, …) of two vectors and keeps both
//                              results. The last two work within each quarter
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define BATON_INLINE static inline __attribute__((always_inline))

#if defined(__AVX2__) && !defined(__AVX512F__)
#include "linalg/simd_pair.h"
#else
#include "linalg/simd_vector.h"
#endif

namespace baton::linalg {
namespace {

constexpr int kLanes = 16;

/// The first n < 16 lanes from memory, zero in the others.
BATON_INLINE F16 load_some(const float* p, int64_t n) {
  alignas(64) float some[kLanes] = {};
  std::memcpy(some, p, static_cast<size_t>(n) * sizeof(float));
  return load(some);
}

BATON_INLINE void store_some(float* p, F16 v, int64_t n) {
  alignas(64) float some[kLanes];
  store(some, v);
  std::memcpy(p, some, static_cast<size_t>(n) * sizeof(float));
}

/// Applies fn(vector) → vector elementwise to n values of up to two inputs.
template <typename Fn>
BATON_INLINE void map2(const float* a, const float* b, int64_t n, float* y, Fn fn) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, fn(load(a + i), load(b + i)));
  if (i < n) store_some(y + i, fn(load_some(a + i, n - i), load_some(b + i, n - i)), n - i);
}

/// bfloat16 → float32, exact.
BATON_INLINE F16 widen(H16 h) { return as_float(to_u32(h) << 16); }

BATON_INLINE F16 load(const uint16_t* p) {
  H16 h;
  std::memcpy(&h, p, sizeof h);
  return widen(h);
}

BATON_INLINE F16 load_some(const uint16_t* p, int64_t n) {
  H16 h = {};
  std::memcpy(&h, p, static_cast<size_t>(n) * sizeof(uint16_t));
  return widen(h);
}

/// The first 8 lanes from memory, zero in the others.
template <typename T>
BATON_INLINE F16 load_8(const T* p) {
  return load_some(p, 8);
}

/// float32 → bfloat16, nearest even; a NaN stays a (quiet) NaN.
BATON_INLINE H16 narrow(F16 v) {
  const U16 bits = as_uint(v);
  const U16 rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const U16 nan = (bits >> 16) | 0x40U;
  return to_u16(select(v == v, rounded, nan));
}

/// Lanes i and i + width joined for width 8, 4, 2, 1: always the same tree.
template <typename Fn>
BATON_INLINE float reduce(F16 v, Fn join) {
  v = join(v, swap_halves(v));
  v = join(v, swap_quarters(v));
  v = join(v, swap_pairs(v));
  v = join(v, swap_ones(v));
  return first(v);
}

BATON_INLINE float sum(F16 v) {
  return reduce(v, [](F16 a, F16 b) { return a + b; });
}

/// Of a NaN and b they give b: exp relies on it.
BATON_INLINE F16 max(F16 a, F16 b) { return select(a > b, a, b); }
BATON_INLINE F16 min(F16 a, F16 b) { return select(a < b, a, b); }

BATON_INLINE float max(F16 v) {
  return reduce(v, [](F16 a, F16 b) { return max(a, b); });
}

/// e^x with about 1e-7 relative error; exp(0) is exactly 1; below -87.3 the result is 1.2e-38,
/// above 88 it is 1.7e38; a NaN stays one. Range reduction and polynomial of Cephes' expf
/// (Moshier).
BATON_INLINE F16 exp(F16 x) {
  x = min(splat(88.0F), max(splat(-87.3F), x));
  const float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const F16 shifted = fma(x, splat(1.44269504088896341F), splat(kRound));
  const F16 n = shifted - kRound;
  const F16 r = fma(n, splat(2.12194440e-4F), fma(n, splat(-0.693359375F), x));
  F16 p = fma(r, splat(1.9875691500e-4F), splat(1.3981999507e-3F));
  p = fma(p, r, splat(8.3334519073e-3F));
  p = fma(p, r, splat(4.1665795894e-2F));
  p = fma(p, r, splat(1.6666665459e-1F));
  p = fma(p, r, splat(5.0000001201e-1F));
  p = fma(p, r * r, r) + 1.0F;
  return as_float(as_int(p) + (as_int(shifted) << 23));
}

/// x / (1 + e^-z): SiLU with z = x; GELU (tanh form) with z = 2 sqrt(2/π) (x + 0.044715 x³),
/// because (1 + tanh u) / 2 = 1 / (1 + e^-2u).
BATON_INLINE F16 gate(F16 x, F16 z) { return x / (1.0F + exp(-z)); }

}  // namespace
}  // namespace baton::linalg
