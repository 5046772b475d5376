// The decode class for many rows: weights widened to words of 16 bits, strips side by side.
#include "linalg/avx512_kernels.h"
#include "linalg/avx512_tile.h"

#include <utility>

namespace baton::linalg {
namespace {

// How far ahead of the codes that are multiplied those of the same strip are asked for.
constexpr int kPrefetchBytes = 2048;

// Of the type that the product has inside: g++ keeps an array of __m512i in memory as well.
using I16 = int32_t __attribute__((vector_size(64)));

// A tile of S strips in the first-level cache.
template <int S>
struct WordTile {
  // Register 2j of a strip has the codes, less their bias, of inputs 4j and 4j + 2 (two words for
  // each output), register 2j + 1 the odd ones.
  alignas(64) int16_t words[16][S][32];
  __m512 scale[S];
  __m512 second[S];  // as Tile::second
};

template <TensorType kType, int S>
inline void widen_tile(const StripCall& call, int64_t b, WordTile<S>& out) {
  constexpr TileFormat kFormat = tile_format(kType);
  constexpr int kCodeBytes = tile_code_bytes(kFormat);
  const __m512i low_byte = _mm512_set1_epi16(0xFF);
  const __m512i bias = _mm512_set1_epi16(kFormat.bias);
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
    for (int j = 0; j < 8; ++j) {
      __m512i even = _mm512_and_si512(tile.codes[j], low_byte);
      __m512i odd = _mm512_srli_epi16(tile.codes[j], 8);
      if constexpr (kFormat.bias != 0) {
        even = _mm512_sub_epi16(even, bias);
        odd = _mm512_sub_epi16(odd, bias);
      }
      _mm512_store_si512(out.words[2 * j][s], even);
      _mm512_store_si512(out.words[2 * j + 1][s], odd);
    }
  }
}

// acc[R][S] += the tile's registers [kFirst, kFirst + kN) times R rows, scaled by `scale`, and for
// types with a min += `min` times the rows' `sums`. Products of 16 bits need no split into bytes;
// S strips share what is loaded of the rows and R rows what is loaded of the weights: loads bound
// the loop otherwise. I = 0 … R * S - 1.
template <TensorType kType, int kFirst, int kN, int S, int... I>
[[gnu::always_inline]] inline void word_block(std::integer_sequence<int, I...>,
                                              const WordTile<S>& tile, const __m512* scale,
                                              const int8_t* values, const float* sums,
                                              float* __restrict acc) {
  constexpr TileFormat kFormat = tile_format(kType);
  I16 dots[] = {((void)I, I16{})...};
#pragma GCC unroll 1
  for (int j = kFirst; j < kFirst + kN; ++j) {
    const int8_t* x = values + 4 * j;
    ((dots[I] = (I16)_mm512_dpwssd_epi32((__m512i)dots[I], load512(tile.words[j][I % S]),
                                         broadcast4(x + 64 * (I / S)))),
     ...);
  }
  const auto finish = [&](__m512i dot, int row, int strip, float* a)
      __attribute__((always_inline)) {
    __m512 sum = add_scaled(_mm512_load_ps(a), dot, scale[strip]);
    if constexpr (has_min(kFormat)) {
      sum = add_min<kFormat.scales>(sum, tile.second[strip], sums[row]);
    }
    _mm512_store_ps(a, sum);
  };
  (finish((__m512i)dots[I], I / S, I % S, acc + 16 * I), ...);
}

template <TensorType kType, int R, int S>
inline void word_rows(const WordTile<S>& tile, const int8_t* values, const float* sums,
                      float* acc) {
  constexpr std::make_integer_sequence<int, R * S> kAll;
  if constexpr (tile_format(kType).scales == ScaleKind::kSuper16) {
    word_block<kType, 0, 8>(kAll, tile, tile.scale, values, sums, acc);
    word_block<kType, 8, 8>(kAll, tile, tile.second, values, sums, acc);
  } else {
    word_block<kType, 0, 16>(kAll, tile, tile.scale, values, sums, acc);
  }
}

template <TensorType kType, int S>
void word_strips(const StripCall& call) {
  alignas(64) float acc[kMaxPanelRows * S * kStripOutputs];
  const int n_rows = call.n_rows;
  for (int i = 0; i < n_rows * S; ++i) _mm512_store_ps(acc + 16 * i, _mm512_setzero_ps());
  const int64_t n_tiles = call.n_in / kTileInputs;
  const int8_t* values = call.panel->values;
  const auto* sums = static_cast<const float*>(call.offsets);  // of types with a min
  WordTile<S> tile;
  for (int64_t b = 0; b < n_tiles; ++b, values += 64 * n_rows, sums += n_rows) {
    widen_tile<kType, S>(call, b, tile);
    int r = 0;
    const auto rows = [&]<int R>() {
      word_rows<kType, R, S>(tile, values + 64 * r, sums + r, acc + 16 * r * S);
      r += R;
    };
    while (n_rows - r >= 6) rows.template operator()<6>();
    if (n_rows - r >= 4) rows.template operator()<4>();
    if (n_rows - r >= 2) rows.template operator()<2>();
    if (n_rows - r >= 1) rows.template operator()<1>();
  }
  for (int r = 0; r < n_rows; ++r) {
    const __m512 scale = _mm512_set1_ps(call.panel->scales[r]);
    for (int s = 0; s < S; ++s) {
      const int left = call.n_outputs - s * kStripOutputs;
      const __mmask16 mask = output_mask(left < kStripOutputs ? left : kStripOutputs);
      _mm512_mask_storeu_ps(call.y + r * call.y_stride + s * kStripOutputs, mask,
                            _mm512_mul_ps(_mm512_load_ps(acc + 16 * (r * S + s)), scale));
    }
  }
}

template <TensorType kType>
void word_kernel(const StripCall& call) {
  if (call.n_strips == 4) return word_strips<kType, 4>(call);
  if (call.n_strips == 2) return word_strips<kType, 2>(call);
  word_strips<kType, 1>(call);
}

}  // namespace

StripKernel avx512_word_kernel(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return word_kernel<TensorType::kQ4_0>;
    case TensorType::kQ4_1:
      return word_kernel<TensorType::kQ4_1>;
    case TensorType::kQ5_0:
      return word_kernel<TensorType::kQ5_0>;
    case TensorType::kQ5_1:
      return word_kernel<TensorType::kQ5_1>;
    case TensorType::kQ8_0:
      return word_kernel<TensorType::kQ8_0>;
    case TensorType::kQ4_K:
      return word_kernel<TensorType::kQ4_K>;
    case TensorType::kQ5_K:
      return word_kernel<TensorType::kQ5_K>;
    case TensorType::kQ6_K:
      return word_kernel<TensorType::kQ6_K>;
    default:
      return nullptr;
  }
}

}  // namespace baton::linalg
