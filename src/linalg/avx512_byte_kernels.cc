// Activations of 8 bits: byte products of the codes as they are, strips side by side. Right for any
// number of rows, made for many.
#include "linalg/activations.h"
#include "linalg/avx512_kernels.h"
#include "linalg/avx512_tile.h"

#include <utility>

namespace baton::linalg {
namespace {

// How far ahead of the codes that are multiplied those of the same strip are asked for.
constexpr int kPrefetchBytes = 2048;
constexpr int kBlockBytes = panel_block_bytes(PanelLayout::kBytes);

// Of the type that the product has inside: g++ keeps an array of __m512i in memory as well.
using I32 = int32_t __attribute__((vector_size(64)));

// A tile of S strips in the first-level cache.
template <int S>
struct ByteTile {
  alignas(64) uint8_t codes[8][S][64];
  __m512 scale[S];
  __m512 second[S];  // as Tile::second
};

template <TensorType kType, int S>
inline void unpack_tile(const StripCall& call, int64_t b, ByteTile<S>& out) {
  constexpr TileFormat kFormat = tile_format(kType);
  constexpr int kCodeBytes = tile_code_bytes(kFormat);
  const int64_t first_code = strip_scale_bytes(kFormat, call.n_in / kTileInputs) + b * kCodeBytes;
  // What follows these S strips are the next S.
  int64_t ahead = first_code + kPrefetchBytes;
  if (ahead >= call.strip_bytes) ahead += (S - 1) * call.strip_bytes;
  for (int s = 0; s < S; ++s) {
    const uint8_t* strip = call.strip + s * call.strip_bytes;
    prefetch<kCodeBytes>(strip + ahead);
    Tile tile;
    load_scales<kFormat.scales>(strip, b, tile);
    load_codes<kFormat.bits>(strip + first_code, tile.codes);
    out.scale[s] = tile.scale;
    if constexpr (has_min(kFormat) || kFormat.scales == ScaleKind::kSuper16) {
      out.second[s] = tile.second;
    }
    for (int j = 0; j < 8; ++j) _mm512_store_si512(out.codes[j][s], tile.codes[j]);
  }
}

// What a tile needs of the rows: those from the first one of a call on.
struct ByteRows {
  const int8_t* values;
  const float* scales;
  const void* offsets;
};

// acc[R][S] += the tile's registers [kFirst, kFirst + kN) times R rows, scaled by `scale` and the
// rows' own scales, and for types with a min += `min` times the rows' sums. S strips share what is
// loaded of the rows and R rows what is loaded of the weights. I = 0 … R * S - 1. The order of the
// float operations is that of activations.h.
// Inlined: a call with its loads and stores of pointers takes as long as a sixth of the block.
// Without `restrict` g++ would load the scales anew for each product, with the loop unrolled all
// weights first, into more registers than there are.
template <TensorType kType, int kFirst, int kN, int S, int... I>
[[gnu::always_inline]] inline void byte_block(std::integer_sequence<int, I...>,
                                              const ByteTile<S>& tile, const __m512* scale,
                                              ByteRows rows, float* __restrict acc) {
  constexpr TileFormat kFormat = tile_format(kType);
  constexpr int kOffsets = kFormat.scales == ScaleKind::kSuper16 ? 2 : 1;
  // The codes are what they stand for plus the bias: the sums begin at what that adds, negated.
  const auto first = [&](int row) __attribute__((always_inline)) {
    if constexpr (kFormat.bias == 0) return I32{};
    const auto* offsets = static_cast<const int32_t*>(rows.offsets);
    return (I32)_mm512_set1_epi32(offsets[kOffsets * row + (kFirst == 0 ? 0 : 1)]);
  };
  I32 dots[] = {first(I / S)...};
#pragma GCC unroll 1
  for (int j = kFirst; j < kFirst + kN; ++j) {
    const int8_t* x = rows.values + 4 * j;
    ((dots[I] = (I32)_mm512_dpbusd_epi32((__m512i)dots[I], load512(tile.codes[j][I % S]),
                                         broadcast4(x + kBlockBytes * (I / S)))),
     ...);
  }
  __m512 row_scale;
  __m512 row_sum;
  const auto finish = [&](__m512i dot, int row, int strip, float* a)
      __attribute__((always_inline)) {
    if (strip == 0) {
      row_scale = _mm512_set1_ps(rows.scales[row]);
      if constexpr (has_min(kFormat)) {
        row_sum = _mm512_set1_ps(static_cast<const float*>(rows.offsets)[row]);
      }
    }
    const __m512 part = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), scale[strip]);
    __m512 sum = _mm512_fmadd_ps(part, row_scale, _mm512_load_ps(a));
    if constexpr (has_min(kFormat)) {
      sum = kFormat.scales == ScaleKind::kSuper ? _mm512_fnmadd_ps(tile.second[strip], row_sum, sum)
                                                : _mm512_fmadd_ps(tile.second[strip], row_sum, sum);
    }
    _mm512_store_ps(a, sum);
  };
  (finish((__m512i)dots[I], I / S, I % S, acc + 16 * I), ...);
}

template <TensorType kType, int R, int S>
inline void byte_rows(const ByteTile<S>& tile, const ByteRows& rows, float* acc) {
  constexpr std::make_integer_sequence<int, R * S> kAll;
  if constexpr (tile_format(kType).scales == ScaleKind::kSuper16) {
    byte_block<kType, 0, 4>(kAll, tile, tile.scale, rows, acc);
    byte_block<kType, 4, 4>(kAll, tile, tile.second, rows, acc);
  } else {
    byte_block<kType, 0, 8>(kAll, tile, tile.scale, rows, acc);
  }
}

template <TensorType kType, int S>
void byte_strips(const StripCall& call) {
  constexpr int kOffsets = tile_format(kType).scales == ScaleKind::kSuper16 ? 2 : 1;
  alignas(64) float acc[kMaxPanelRows * S * kStripOutputs];
  const int n_rows = call.n_rows;
  for (int i = 0; i < n_rows * S; ++i) _mm512_store_ps(acc + 16 * i, _mm512_setzero_ps());
  const int64_t n_tiles = call.n_in / kTileInputs;
  const int8_t* values = call.panel->values;
  const float* scales = call.panel->scales;
  const auto* offsets = static_cast<const int32_t*>(call.offsets);  // or as many floats
  ByteTile<S> tile;
  for (int64_t b = 0; b < n_tiles; ++b) {
    unpack_tile<kType, S>(call, b, tile);
    int r = 0;
    const auto rows = [&]<int R>() {
      byte_rows<kType, R, S>(tile, {values + kBlockBytes * r, scales + r, offsets + kOffsets * r},
                             acc + 16 * r * S);
      r += R;
    };
    while (n_rows - r >= 6) rows.template operator()<6>();
    if (n_rows - r >= 4) rows.template operator()<4>();
    if (n_rows - r >= 2) rows.template operator()<2>();
    if (n_rows - r >= 1) rows.template operator()<1>();
    values += kBlockBytes * n_rows;
    scales += n_rows;
    offsets += kOffsets * n_rows;
  }
  for (int r = 0; r < n_rows; ++r) {
    for (int s = 0; s < S; ++s) {
      const int left = call.n_outputs - s * kStripOutputs;
      const __mmask16 mask = output_mask(left < kStripOutputs ? left : kStripOutputs);
      _mm512_mask_storeu_ps(call.y + r * call.y_stride + s * kStripOutputs, mask,
                            _mm512_load_ps(acc + 16 * (r * S + s)));
    }
  }
}

template <TensorType kType>
void byte_kernel(const StripCall& call) {
  if (call.n_strips == 4) return byte_strips<kType, 4>(call);
  if (call.n_strips == 2) return byte_strips<kType, 2>(call);
  byte_strips<kType, 1>(call);
}

// ---- activations

constexpr int kGroup = 4;  // blocks that are quantised together: they share what reduces them

// Lane i: all lanes of v[i] put together by `op`.
template <typename Op>
inline __m128i reduce_each(const __m512i* v, Op op) {
  const __m512i ab = op(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i cd = op(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
  __m512i all = op(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  all = op(all, _mm512_shuffle_i64x2(all, all, _MM_SHUFFLE(1, 0, 3, 2)));
  all = op(all, _mm512_shuffle_i64x2(all, all, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm512_castsi512_si128(all);
}

inline __m512i max_of(__m512i a, __m512i b) { return _mm512_max_epi32(a, b); }
inline __m512i sum_of(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }

// The scales of four blocks and what their values are multiplied with; 0 = they are all to be 0.
struct GroupScales {
  alignas(16) float scale[kGroup];
  alignas(16) float inverse[kGroup];
};

inline void group_scales(const float* const* x, GroupScales& out) {
  const __m512i no_sign = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i largest[kGroup];
  for (int i = 0; i < kGroup; ++i) {
    largest[i] = max_of(_mm512_and_si512(load512(x[i]), no_sign),
                        _mm512_and_si512(load512(x[i] + 16), no_sign));
  }
  const __m128i bits = reduce_each(largest, max_of);
  const __m128 max = _mm_castsi128_ps(bits);
  const __m128 most = _mm_set1_ps(static_cast<float>(kByteActivationMax));
  const __mmask8 odd = _mm_cmpge_epi32_mask(bits, _mm_set1_epi32(0x7F800000));
  const __mmask8 some = static_cast<__mmask8>(
      ~odd & _mm_cmp_ps_mask(max, _mm_set1_ps(kSmallestActivation), _CMP_GE_OQ));
  const __m128 scale = _mm_maskz_div_ps(some, max, most);
  _mm_store_ps(out.scale, _mm_mask_mov_ps(scale, odd, _mm_set1_ps(__builtin_nanf(""))));
  _mm_store_ps(out.inverse, _mm_maskz_div_ps(some, most, max));
}

}  // namespace

void avx512_quantize_blocks(const float* x, int64_t n, const ActivationPanel& panel, int row) {
  const int64_t n_blocks = n / kActivationBlock;
  for (int64_t b = 0; b < n_blocks; b += kGroup) {
    // The last blocks of a row again, where there are fewer than four.
    int64_t block[kGroup];
    const float* from[kGroup];
    for (int i = 0; i < kGroup; ++i) {
      block[i] = b + i < n_blocks ? b + i : n_blocks - 1;
      from[i] = x + kActivationBlock * block[i];
    }
    GroupScales scales;
    group_scales(from, scales);
    __m512i q[2][kGroup];
    for (int i = 0; i < kGroup; ++i) {
      const __m512 inverse = _mm512_set1_ps(scales.inverse[i]);
      const __mmask16 take = scales.inverse[i] == 0.0F ? 0 : 0xFFFF;
      int8_t* values = panel.values + kBlockBytes * (block[i] * panel.n_rows + row);
      for (int half = 0; half < 2; ++half) {
        q[half][i] = _mm512_cvtps_epi32(
            _mm512_mul_ps(_mm512_maskz_loadu_ps(take, from[i] + 16 * half), inverse));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(values + 16 * half),
                         _mm512_cvtepi32_epi8(q[half][i]));
      }
      panel.scales[block[i] * panel.n_rows + row] = scales.scale[i];
    }
    alignas(16) int32_t sums[2][kGroup];
    for (int half = 0; half < 2; ++half) {
      _mm_store_si128(reinterpret_cast<__m128i*>(sums[half]), reduce_each(q[half], sum_of));
    }
    for (int i = 0; i < kGroup; ++i) {
      int32_t* to = panel.sums + 2 * (block[i] * panel.n_rows + row);
      to[0] = sums[0][i];
      to[1] = sums[1][i];
    }
  }
}

StripKernel avx512_byte_kernel(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return byte_kernel<TensorType::kQ4_0>;
    case TensorType::kQ4_1:
      return byte_kernel<TensorType::kQ4_1>;
    case TensorType::kQ5_0:
      return byte_kernel<TensorType::kQ5_0>;
    case TensorType::kQ5_1:
      return byte_kernel<TensorType::kQ5_1>;
    case TensorType::kQ8_0:
      return byte_kernel<TensorType::kQ8_0>;
    case TensorType::kQ4_K:
      return byte_kernel<TensorType::kQ4_K>;
    case TensorType::kQ5_K:
      return byte_kernel<TensorType::kQ5_K>;
    case TensorType::kQ6_K:
      return byte_kernel<TensorType::kQ6_K>;
    default:
      return nullptr;
  }
}

}  // namespace baton::linalg
