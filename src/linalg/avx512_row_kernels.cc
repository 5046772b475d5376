// The decode class for one row, a stream that decodes alone: strips side by side. They share what
// is loaded of the activations, and four streams keep more of the memory's lines in flight than one
// does.
#include "linalg/avx512_kernels.h"
#include "linalg/avx512_tile.h"

namespace baton::linalg {
namespace {

// How far ahead of the codes that are multiplied those of the same strip are asked for.
constexpr int kPrefetchBytes = 2048;

// Sums of S strips over one tile, or over one half of it: 128 * high + low.
template <int S>
struct Dots {
  __m512i high[S];
  __m512i low[S];

  void clear() {
    for (int s = 0; s < S; ++s) high[s] = low[s] = _mm512_setzero_si512();
  }
  void add(int s, __m512i codes, __m512i high_bytes, __m512i low_bytes) {
    high[s] = _mm512_dpbusd_epi32(high[s], codes, high_bytes);
    low[s] = _mm512_dpbusd_epi32(low[s], codes, low_bytes);
  }
  [[nodiscard]] __m512i sum(int s) const {
    return _mm512_add_epi32(_mm512_slli_epi32(high[s], 7), low[s]);
  }
};

// Registers J and J + 4 of a tile (J < 4), as load_codes() gives them.
template <int kBits, int J>
inline void load_two(const uint8_t* p, __m512i& first, __m512i& second) {
  if constexpr (kBits == 8) {
    first = load512(p + 64 * J);
    second = load512(p + 64 * (J + 4));
    return;
  }
  const __m512i nibble = _mm512_set1_epi8(15);
  const __m512i both = load512(p + 64 * J);
  first = _mm512_and_si512(both, nibble);
  second = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
  if constexpr (kBits == 5) {
    const __m512i plane = load512(p + 256);
    const __m512i mask = _mm512_set1_epi8(16);
    first = merge_bits<J - 4>(first, plane, mask);
    second = merge_bits<J>(second, plane, mask);
  }
  if constexpr (kBits == 6) {
    const __m512i mask = _mm512_set1_epi8(0x30);
    first = merge_bits<2 * J - 4>(first, load512(p + 256), mask);
    second = merge_bits<2 * J - 4>(second, load512(p + 320), mask);
  }
}

// The registers J and J + 4 of S tiles; `planes` is the row's block: high bytes, then low ones.
template <TensorType kType, int S, int J>
inline void add_two(const uint8_t* codes, int64_t strip_bytes, const int8_t* planes, Dots<S>& first,
                    Dots<S>& second) {
  const __m512i high = broadcast4(planes + 4 * J);
  const __m512i low = broadcast4(planes + 32 + 4 * J);
  const __m512i later_high = broadcast4(planes + 16 + 4 * J);
  const __m512i later_low = broadcast4(planes + 48 + 4 * J);
#pragma GCC unroll 4
  for (int s = 0; s < S; ++s) {
    __m512i c;
    __m512i later;
    load_two<tile_format(kType).bits, J>(codes + s * strip_bytes, c, later);
    first.add(s, c, high, low);
    second.add(s, later, later_high, later_low);
  }
}

// What the tile b of S strips adds to the row's sums. The order of the float operations is that of
// tile_rows() in avx512_kernels.cc.
template <TensorType kType, int S>
inline void add_tile(const StripCall& call, const uint8_t* codes, int64_t b, __m512* acc) {
  constexpr TileFormat kFormat = tile_format(kType);
  const int8_t* planes = call.panel->values + 64 * b;
  constexpr bool kHalves = kFormat.scales == ScaleKind::kSuper16;
  Dots<S> dots;
  Dots<S> second_half;
  dots.clear();
  if constexpr (kHalves) second_half.clear();
  Dots<S>& later = kHalves ? second_half : dots;
  add_two<kType, S, 0>(codes, call.strip_bytes, planes, dots, later);
  add_two<kType, S, 1>(codes, call.strip_bytes, planes, dots, later);
  add_two<kType, S, 2>(codes, call.strip_bytes, planes, dots, later);
  add_two<kType, S, 3>(codes, call.strip_bytes, planes, dots, later);
  const auto* integers = static_cast<const int32_t*>(call.offsets);
#pragma GCC unroll 4
  for (int s = 0; s < S; ++s) {
    Tile tile;
    load_scales<kFormat.scales>(call.strip + s * call.strip_bytes, b, tile);
    if constexpr (kHalves) {
      acc[s] = add_scaled(acc[s], less(dots.sum(s), integers[2 * b]), tile.scale);
      acc[s] = add_scaled(acc[s], less(second_half.sum(s), integers[2 * b + 1]), tile.second);
    } else if constexpr (has_min(kFormat)) {
      acc[s] = add_scaled(acc[s], dots.sum(s), tile.scale);
      acc[s] =
          add_min<kFormat.scales>(acc[s], tile.second, static_cast<const float*>(call.offsets)[b]);
    } else {
      acc[s] = add_scaled(acc[s], less(dots.sum(s), integers[b]), tile.scale);
    }
  }
}

// S strips; the first tiles of the S after them are asked for when these come to their end.
template <TensorType kType, int S>
void row_strips(const StripCall& call) {
  constexpr TileFormat kFormat = tile_format(kType);
  constexpr int kCodeBytes = tile_code_bytes(kFormat);
  constexpr int64_t kAheadTiles = kPrefetchBytes / kCodeBytes;
  const int64_t n_tiles = call.n_in / kTileInputs;
  const int64_t scale_bytes = strip_scale_bytes(kFormat, n_tiles);
  __m512 acc[S];
#pragma GCC unroll 4
  for (int s = 0; s < S; ++s) acc[s] = _mm512_setzero_ps();
  const uint8_t* codes = call.strip + scale_bytes;
  for (int64_t b = 0; b < n_tiles; ++b) {
    int64_t ahead = (b + kAheadTiles) * kCodeBytes;
    if (b + kAheadTiles >= n_tiles) ahead += S * call.strip_bytes - n_tiles * kCodeBytes;
#pragma GCC unroll 4
    for (int s = 0; s < S; ++s) {
      prefetch<kCodeBytes>(call.strip + scale_bytes + s * call.strip_bytes + ahead);
    }
    add_tile<kType, S>(call, codes, b, acc);
    codes += kCodeBytes;
  }
  const __m512 scale = _mm512_set1_ps(call.panel->scales[0]);
#pragma GCC unroll 4
  for (int s = 0; s < S; ++s) {
    const int left = call.n_outputs - s * kStripOutputs;
    const __mmask16 mask = output_mask(left < kStripOutputs ? left : kStripOutputs);
    _mm512_mask_storeu_ps(call.y + s * kStripOutputs, mask, _mm512_mul_ps(acc[s], scale));
  }
}

template <TensorType kType>
void row_kernel(const StripCall& call) {
  if (call.n_strips == 4) return row_strips<kType, 4>(call);
  if (call.n_strips == 2) return row_strips<kType, 2>(call);
  row_strips<kType, 1>(call);
}

}  // namespace

StripKernel avx512_row_kernel(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return row_kernel<TensorType::kQ4_0>;
    case TensorType::kQ4_1:
      return row_kernel<TensorType::kQ4_1>;
    case TensorType::kQ5_0:
      return row_kernel<TensorType::kQ5_0>;
    case TensorType::kQ5_1:
      return row_kernel<TensorType::kQ5_1>;
    case TensorType::kQ8_0:
      return row_kernel<TensorType::kQ8_0>;
    case TensorType::kQ4_K:
      return row_kernel<TensorType::kQ4_K>;
    case TensorType::kQ5_K:
      return row_kernel<TensorType::kQ5_K>;
    case TensorType::kQ6_K:
      return row_kernel<TensorType::kQ6_K>;
    default:
      return nullptr;
  }
}

}  // namespace baton::linalg
