// Sixteen float32 lanes as two registers of AVX2: g++ takes longer vectors apart in memory. The
// same operations as simd_vector.h, see simd.h.
#pragma once

namespace baton::linalg {
namespace {

using F8 = float __attribute__((vector_size(32)));
using I8 = int32_t __attribute__((vector_size(32)));
using U8 = uint32_t __attribute__((vector_size(32)));
using H8 = uint16_t __attribute__((vector_size(16)));

template <typename V>
struct Pair {
  V lo;
  V hi;
};
using F16 = Pair<F8>;
using I16 = Pair<I8>;
using U16 = Pair<U8>;
using H16 = Pair<H8>;

// Lane by lane, between two pairs or a pair and a scalar.
#define BATON_PAIR_OPERATOR(op)                                                       \
  template <typename V>                                                               \
  BATON_INLINE auto operator op(Pair<V> a, Pair<V> b)->Pair<decltype(a.lo op b.lo)> { \
    return {a.lo op b.lo, a.hi op b.hi};                                              \
  }                                                                                   \
  template <typename V, typename S>                                                   \
  BATON_INLINE auto operator op(Pair<V> a, S b)->Pair<decltype(a.lo op b)> {          \
    return {a.lo op b, a.hi op b};                                                    \
  }                                                                                   \
  template <typename V, typename S>                                                   \
  BATON_INLINE auto operator op(S a, Pair<V> b)->Pair<decltype(a op b.lo)> {          \
    return {a op b.lo, a op b.hi};                                                    \
  }
BATON_PAIR_OPERATOR(+)
BATON_PAIR_OPERATOR(-)
BATON_PAIR_OPERATOR(*)
BATON_PAIR_OPERATOR(/)
BATON_PAIR_OPERATOR(&)
BATON_PAIR_OPERATOR(|)
BATON_PAIR_OPERATOR(<<)
BATON_PAIR_OPERATOR(>>)
BATON_PAIR_OPERATOR(<)
BATON_PAIR_OPERATOR(>)
BATON_PAIR_OPERATOR(>=)
BATON_PAIR_OPERATOR(==)
#undef BATON_PAIR_OPERATOR

template <typename V>
BATON_INLINE Pair<V> operator-(Pair<V> a) {
  return {-a.lo, -a.hi};
}
template <typename V, typename T>
BATON_INLINE Pair<V>& operator+=(Pair<V>& a, T b) {
  return a = a + b;
}
template <typename V, typename T>
BATON_INLINE Pair<V>& operator*=(Pair<V>& a, T b) {
  return a = a * b;
}

BATON_INLINE F16 load(const float* p) {
  F16 v;
  std::memcpy(&v.lo, p, sizeof v.lo);
  std::memcpy(&v.hi, p + 8, sizeof v.hi);
  return v;
}
BATON_INLINE void store(float* p, F16 v) {
  std::memcpy(p, &v.lo, sizeof v.lo);
  std::memcpy(p + 8, &v.hi, sizeof v.hi);
}
BATON_INLINE I16 as_int(F16 v) { return {(I8)v.lo, (I8)v.hi}; }
BATON_INLINE U16 as_uint(F16 v) { return {(U8)v.lo, (U8)v.hi}; }
BATON_INLINE F16 as_float(I16 v) { return {(F8)v.lo, (F8)v.hi}; }
BATON_INLINE F16 as_float(U16 v) { return {(F8)v.lo, (F8)v.hi}; }
BATON_INLINE F16 splat(float x) {
  const F8 half = {x, x, x, x, x, x, x, x};
  return {half, half};
}
BATON_INLINE I16 lane_numbers() {
  const I8 low = {0, 1, 2, 3, 4, 5, 6, 7};
  return {low, low + 8};
}
BATON_INLINE float first(F16 v) { return v.lo[0]; }
BATON_INLINE F16 select(I16 mask, F16 a, F16 b) {
  return {mask.lo ? a.lo : b.lo, mask.hi ? a.hi : b.hi};
}
BATON_INLINE U16 select(I16 mask, U16 a, U16 b) {
  return {mask.lo ? a.lo : b.lo, mask.hi ? a.hi : b.hi};
}
BATON_INLINE U16 to_u32(H16 h) {
  return {__builtin_convertvector(h.lo, U8), __builtin_convertvector(h.hi, U8)};
}
BATON_INLINE H16 to_u16(U16 u) {
  return {__builtin_convertvector(u.lo, H8), __builtin_convertvector(u.hi, H8)};
}

BATON_INLINE F16 fma(F16 a, F16 b, F16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

/// Both halves through the same shuffle of a half with itself, or of the halves of two vectors.
#define BATON_SHUFFLE_EACH(a, b, ...)                        \
  F16 {                                                      \
    __builtin_shufflevector((a).lo, (b).lo, __VA_ARGS__),    \
        __builtin_shufflevector((a).hi, (b).hi, __VA_ARGS__) \
  }

BATON_INLINE F16 swap_halves(F16 v) { return {v.hi, v.lo}; }
BATON_INLINE F16 swap_quarters(F16 v) { return BATON_SHUFFLE_EACH(v, v, 4, 5, 6, 7, 0, 1, 2, 3); }
BATON_INLINE F16 swap_pairs(F16 v) { return BATON_SHUFFLE_EACH(v, v, 2, 3, 0, 1, 6, 7, 4, 5); }
BATON_INLINE F16 swap_ones(F16 v) { return BATON_SHUFFLE_EACH(v, v, 1, 0, 3, 2, 5, 4, 7, 6); }

BATON_INLINE F16 interleave_low(F16 a, F16 b) {
  return {__builtin_shufflevector(a.lo, b.lo, 0, 8, 1, 9, 2, 10, 3, 11),
          __builtin_shufflevector(a.lo, b.lo, 4, 12, 5, 13, 6, 14, 7, 15)};
}
BATON_INLINE F16 interleave_high(F16 a, F16 b) {
  return {__builtin_shufflevector(a.hi, b.hi, 0, 8, 1, 9, 2, 10, 3, 11),
          __builtin_shufflevector(a.hi, b.hi, 4, 12, 5, 13, 6, 14, 7, 15)};
}
BATON_INLINE F16 even_lanes(F16 a, F16 b) {
  return {__builtin_shufflevector(a.lo, a.hi, 0, 2, 4, 6, 8, 10, 12, 14),
          __builtin_shufflevector(b.lo, b.hi, 0, 2, 4, 6, 8, 10, 12, 14)};
}
BATON_INLINE F16 odd_lanes(F16 a, F16 b) {
  return {__builtin_shufflevector(a.lo, a.hi, 1, 3, 5, 7, 9, 11, 13, 15),
          __builtin_shufflevector(b.lo, b.hi, 1, 3, 5, 7, 9, 11, 13, 15)};
}

BATON_INLINE F16 join_halves(F16 a, F16 b) { return {a.lo + a.hi, b.lo + b.hi}; }
BATON_INLINE F8 join_own_quarters(F16 v) {
  return __builtin_shufflevector(v.lo, v.hi, 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(v.lo, v.hi, 4, 5, 6, 7, 12, 13, 14, 15);
}
BATON_INLINE F16 join_quarters(F16 a, F16 b) {
  return {join_own_quarters(a), join_own_quarters(b)};
}
BATON_INLINE F16 join_pairs(F16 a, F16 b) {
  return BATON_SHUFFLE_EACH(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
         BATON_SHUFFLE_EACH(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
}
BATON_INLINE F16 join_ones(F16 a, F16 b) {
  return BATON_SHUFFLE_EACH(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
         BATON_SHUFFLE_EACH(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}
#undef BATON_SHUFFLE_EACH

}  // namespace
}  // namespace baton::linalg
