// Sixteen float32 lanes as one vector of the compilers' extensions: native with AVX-512, taken
// apart by the compiler elsewhere. See simd.h.
#pragma once

namespace baton::linalg {
namespace {

using F16 = float __attribute__((vector_size(64)));
using I16 = int32_t __attribute__((vector_size(64)));
using U16 = uint32_t __attribute__((vector_size(64)));
using H16 = uint16_t __attribute__((vector_size(32)));

BATON_INLINE F16 load(const float* p) {
  F16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
BATON_INLINE void store(float* p, F16 v) { std::memcpy(p, &v, sizeof v); }
BATON_INLINE I16 as_int(F16 v) { return (I16)v; }
BATON_INLINE U16 as_uint(F16 v) { return (U16)v; }
BATON_INLINE F16 as_float(I16 v) { return (F16)v; }
BATON_INLINE F16 as_float(U16 v) { return (F16)v; }
BATON_INLINE F16 splat(float x) { return F16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
BATON_INLINE I16 lane_numbers() {
  return I16{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
}
BATON_INLINE float first(F16 v) { return v[0]; }
BATON_INLINE F16 select(I16 mask, F16 a, F16 b) { return mask ? a : b; }
BATON_INLINE U16 select(I16 mask, U16 a, U16 b) { return mask ? a : b; }
BATON_INLINE U16 to_u32(H16 h) { return __builtin_convertvector(h, U16); }
BATON_INLINE H16 to_u16(U16 u) { return __builtin_convertvector(u, H16); }

BATON_INLINE F16 fma(F16 a, F16 b, F16 c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

BATON_INLINE F16 swap_halves(F16 v) {
  return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
}
BATON_INLINE F16 swap_quarters(F16 v) {
  return __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
}
BATON_INLINE F16 swap_pairs(F16 v) {
  return __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
}
BATON_INLINE F16 swap_ones(F16 v) {
  return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
}

BATON_INLINE F16 interleave_low(F16 a, F16 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
BATON_INLINE F16 interleave_high(F16 a, F16 b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}
BATON_INLINE F16 even_lanes(F16 a, F16 b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
BATON_INLINE F16 odd_lanes(F16 a, F16 b) {
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

BATON_INLINE F16 join_halves(F16 a, F16 b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
         __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30,
                                 31);
}
BATON_INLINE F16 join_quarters(F16 a, F16 b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
         __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
BATON_INLINE F16 join_pairs(F16 a, F16 b) {
  return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
         __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
BATON_INLINE F16 join_ones(F16 a, F16 b) {
  return __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
         __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
}

}  // namespace
}  // namespace baton::linalg
