// What the AVX-512 kernels of quantised strips share: a tile in registers. Included by
// avx512_kernels.cc and avx512_{row,word}_kernels.cc alone, whose flags it needs; everything is in
// an anonymous namespace, so that no copy with those instructions can serve another file.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "linalg/tiles.h"

namespace baton::linalg {
namespace {

// ---- loads

inline __m512i load512(const void* p) { return _mm512_loadu_si512(p); }

inline __m512 load_half16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

inline __m512 load_u8x16(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

inline __m512 load_s8x16(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// Four activation bytes to all lanes; the compiler makes it the memory operand of the product.
inline __m512i broadcast4(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
}

// ---- a tile in registers

struct Tile {
  __m512i codes[8];
  __m512 scale;
  __m512 second;  // the min's magnitude (added, or subtracted for kSuper); kSuper16: the scale of
                  // inputs 16 … 31
};

// code | (plane >> shift & mask), for a shift to the right (positive) or left.
template <int kShift>
inline __m512i merge_bits(__m512i code, __m512i plane, __m512i mask) {
  __m512i moved = plane;
  if constexpr (kShift > 0) moved = _mm512_srli_epi16(plane, kShift);
  if constexpr (kShift < 0) moved = _mm512_slli_epi16(plane, -kShift);
  return _mm512_ternarylogic_epi32(code, moved, mask, 0xF8);  // a | (b & c)
}

template <int kBits>
inline void load_codes(const uint8_t* p, __m512i* codes) {
  if constexpr (kBits == 8) {
    for (int j = 0; j < 8; ++j) codes[j] = load512(p + 64 * j);
    return;
  }
  const __m512i nibble = _mm512_set1_epi8(15);
  for (int j = 0; j < 4; ++j) {
    const __m512i both = load512(p + 64 * j);
    codes[j] = _mm512_and_si512(both, nibble);
    codes[j + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
  }
  if constexpr (kBits == 5) {
    const __m512i plane = load512(p + 256);
    const __m512i mask = _mm512_set1_epi8(16);
    codes[0] = merge_bits<-4>(codes[0], plane, mask);
    codes[1] = merge_bits<-3>(codes[1], plane, mask);
    codes[2] = merge_bits<-2>(codes[2], plane, mask);
    codes[3] = merge_bits<-1>(codes[3], plane, mask);
    codes[4] = merge_bits<0>(codes[4], plane, mask);
    codes[5] = merge_bits<1>(codes[5], plane, mask);
    codes[6] = merge_bits<2>(codes[6], plane, mask);
    codes[7] = merge_bits<3>(codes[7], plane, mask);
  }
  if constexpr (kBits == 6) {
    const __m512i mask = _mm512_set1_epi8(0x30);
    for (int half = 0; half < 2; ++half) {
      const __m512i plane = load512(p + 256 + 64 * half);
      __m512i* c = codes + 4 * half;
      c[0] = merge_bits<-4>(c[0], plane, mask);
      c[1] = merge_bits<-2>(c[1], plane, mask);
      c[2] = merge_bits<0>(c[2], plane, mask);
      c[3] = merge_bits<2>(c[3], plane, mask);
    }
  }
}

template <ScaleKind kKind>
inline void load_scales(const uint8_t* scales, int64_t b, Tile& tile) {
  if constexpr (kKind == ScaleKind::kHalf) {
    tile.scale = load_half16(scales + b * 32);
  } else if constexpr (kKind == ScaleKind::kHalfMin) {
    tile.scale = load_half16(scales + b * 64);
    tile.second = load_half16(scales + b * 64 + 32);
  } else {
    const uint8_t* run = scales + b / kSuperTiles * scale_run_bytes(kKind);
    const int64_t t = b % kSuperTiles;
    if constexpr (kKind == ScaleKind::kSuper) {
      const uint8_t* sub = run + 64 + 32 * t;
      tile.scale = _mm512_mul_ps(load_half16(run), load_u8x16(sub));
      tile.second = _mm512_mul_ps(load_half16(run + 32), load_u8x16(sub + 16));
    } else {
      const uint8_t* sub = run + 32 + 32 * t;
      tile.scale = _mm512_mul_ps(load_half16(run), load_s8x16(sub));
      tile.second = _mm512_mul_ps(load_half16(run), load_s8x16(sub + 16));
    }
  }
}

// ---- sums

inline __m512 add_scaled(__m512 acc, __m512i sum, __m512 scale) {
  return _mm512_add_ps(acc, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale));
}

inline __m512i less(__m512i sum, int32_t offset) {
  return _mm512_sub_epi32(sum, _mm512_set1_epi32(offset));
}

template <ScaleKind kKind>
inline __m512 add_min(__m512 acc, __m512 min, float sum) {
  const __m512 product = _mm512_mul_ps(min, _mm512_set1_ps(sum));
  return kKind == ScaleKind::kSuper ? _mm512_sub_ps(acc, product) : _mm512_add_ps(acc, product);
}

inline __mmask16 output_mask(int n_outputs) {
  return static_cast<__mmask16>((1U << n_outputs) - 1U);
}

// The processor's own prefetchers stop at each 4 KiB and see a new stream in every strip.
template <int kBytes>
inline void prefetch(const uint8_t* p) {
  for (int i = 0; i < kBytes; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
}

}  // namespace
}  // namespace baton::linalg
