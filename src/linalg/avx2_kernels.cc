#include "linalg/avx2_kernels.h"

#include <immintrin.h>

#include <utility>

#include "linalg/activations.h"
#include "linalg/tiles.h"

namespace baton::linalg {
namespace {

// A strip's 16 outputs are two halves of 8, one 256-bit register each: half h of register j of a
// tile (tiles.h) is at 64 j + 32 h.
constexpr int kHalfOutputs = kStripOutputs / 2;
// Below so many rows each row meets the codes in registers; from it on a tile is widened to words
// in the first-level cache for all of them.
constexpr int kMinWidenedRows = 3;
constexpr int kPrefetchBytes = 2048;

// ---- loads

inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

inline __m256 load_half8(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

inline __m256 load_u8x8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

inline __m256 load_s8x8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

// Two activation words to all lanes.
inline __m256i broadcast4(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}

// ---- half a tile in registers

struct HalfTile {
  __m256i codes[8];
  __m256 scale;
  __m256 second;  // the min's magnitude (added, or subtracted for kSuper); kSuper16: the scale of
                  // inputs 16 … 31
};

template <int kShift>
inline __m256i merge_bits(__m256i code, __m256i plane, __m256i mask) {
  __m256i moved = plane;
  if constexpr (kShift > 0) moved = _mm256_srli_epi16(plane, kShift);
  if constexpr (kShift < 0) moved = _mm256_slli_epi16(plane, -kShift);
  return _mm256_or_si256(code, _mm256_and_si256(moved, mask));
}

template <int kBits>
inline void load_codes(const uint8_t* p, __m256i* codes) {
  if constexpr (kBits == 8) {
    for (int j = 0; j < 8; ++j) codes[j] = load256(p + 64 * j);
    return;
  }
  const __m256i nibble = _mm256_set1_epi8(15);
  for (int j = 0; j < 4; ++j) {
    const __m256i both = load256(p + 64 * j);
    codes[j] = _mm256_and_si256(both, nibble);
    codes[j + 4] = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
  }
  if constexpr (kBits == 5) {
    const __m256i plane = load256(p + 256);
    const __m256i mask = _mm256_set1_epi8(16);
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
    const __m256i mask = _mm256_set1_epi8(0x30);
    for (int part = 0; part < 2; ++part) {
      const __m256i plane = load256(p + 256 + 64 * part);
      __m256i* c = codes + 4 * part;
      c[0] = merge_bits<-4>(c[0], plane, mask);
      c[1] = merge_bits<-2>(c[1], plane, mask);
      c[2] = merge_bits<0>(c[2], plane, mask);
      c[3] = merge_bits<2>(c[3], plane, mask);
    }
  }
}

template <ScaleKind kKind>
inline void load_scales(const uint8_t* scales, int64_t b, int half, HalfTile& tile) {
  if constexpr (kKind == ScaleKind::kHalf) {
    tile.scale = load_half8(scales + b * 32 + 16 * half);
  } else if constexpr (kKind == ScaleKind::kHalfMin) {
    tile.scale = load_half8(scales + b * 64 + 16 * half);
    tile.second = load_half8(scales + b * 64 + 32 + 16 * half);
  } else {
    const uint8_t* run = scales + b / kSuperTiles * scale_run_bytes(kKind) + 16 * half;
    const int64_t t = b % kSuperTiles;
    if constexpr (kKind == ScaleKind::kSuper) {
      const uint8_t* sub = run - 8 * half + 64 + 32 * t;
      tile.scale = _mm256_mul_ps(load_half8(run), load_u8x8(sub));
      tile.second = _mm256_mul_ps(load_half8(run + 32), load_u8x8(sub + 16));
    } else {
      const uint8_t* sub = run - 8 * half + 32 + 32 * t;
      tile.scale = _mm256_mul_ps(load_half8(run), load_s8x8(sub));
      tile.second = _mm256_mul_ps(load_half8(run), load_s8x8(sub + 16));
    }
  }
}

template <TensorType kType>
inline void load_half_tile(const uint8_t* strip, const uint8_t* codes, int64_t b, int half,
                           HalfTile& tile) {
  constexpr TileFormat kFormat = tile_format(kType);
  load_scales<kFormat.scales>(strip, b, half, tile);
  load_codes<kFormat.bits>(codes + 32 * half, tile.codes);
}

inline __m256i even_bytes(__m256i codes) {
  return _mm256_and_si256(codes, _mm256_set1_epi16(0xFF));
}
inline __m256i odd_bytes(__m256i codes) { return _mm256_srli_epi16(codes, 8); }

// ---- sums. The order of the float operations is the contract with the portable kernel: for each
// group acc += sum * scale, then acc += min * sum of activations.

inline __m256 add_scaled(__m256 acc, __m256i sum, __m256 scale) {
  return _mm256_add_ps(acc, _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale));
}

template <ScaleKind kKind>
inline __m256 add_min(__m256 acc, __m256 min, float sum) {
  const __m256 product = _mm256_mul_ps(min, _mm256_set1_ps(sum));
  return kKind == ScaleKind::kSuper ? _mm256_sub_ps(acc, product) : _mm256_add_ps(acc, product);
}

// ---- few rows

// Exact dot products of registers [kFirst, kFirst + kN) of the half tile with one row's words.
template <int kFirst, int kN>
inline __m256i dot_row(const HalfTile& tile, const int8_t* values) {
  __m256i even = _mm256_setzero_si256();
  __m256i odd = _mm256_setzero_si256();
  for (int j = kFirst; j < kFirst + kN; ++j) {
    even = _mm256_add_epi32(
        even, _mm256_madd_epi16(even_bytes(tile.codes[j]), broadcast4(values + 8 * j)));
    odd = _mm256_add_epi32(
        odd, _mm256_madd_epi16(odd_bytes(tile.codes[j]), broadcast4(values + 8 * j + 4)));
  }
  return _mm256_add_epi32(even, odd);
}

template <TensorType kType>
inline void add_row(const HalfTile& tile, const int8_t* values, const void* offsets, float* acc) {
  constexpr TileFormat kFormat = tile_format(kType);
  const auto exact = [&](__m256i sum, int group) {
    return _mm256_sub_epi32(sum, _mm256_set1_epi32(static_cast<const int32_t*>(offsets)[group]));
  };
  __m256 a = _mm256_load_ps(acc);
  if constexpr (kFormat.scales == ScaleKind::kSuper16) {
    a = add_scaled(a, exact(dot_row<0, 4>(tile, values), 0), tile.scale);
    a = add_scaled(a, exact(dot_row<4, 4>(tile, values), 1), tile.second);
  } else if constexpr (has_min(kFormat)) {
    a = add_scaled(a, dot_row<0, 8>(tile, values), tile.scale);
    a = add_min<kFormat.scales>(a, tile.second, *static_cast<const float*>(offsets));
  } else {
    a = add_scaled(a, exact(dot_row<0, 8>(tile, values), 0), tile.scale);
  }
  _mm256_store_ps(acc, a);
}

// ---- many rows

// A tile in the first-level cache: register 2j has the codes, less their bias, of inputs 4j and
// 4j + 2 (two words for each output), register 2j + 1 the odd ones; two halves.
struct WordTile {
  alignas(32) int16_t words[16][2][16];
  __m256 scale[2];
  __m256 second[2];  // as HalfTile::second
};

template <TensorType kType>
inline void widen_tile(const uint8_t* strip, const uint8_t* codes, int64_t b, WordTile& out) {
  constexpr TileFormat kFormat = tile_format(kType);
  const __m256i bias = _mm256_set1_epi16(kFormat.bias);
  for (int half = 0; half < 2; ++half) {
    HalfTile tile;
    load_half_tile<kType>(strip, codes, b, half, tile);
    out.scale[half] = tile.scale;
    if constexpr (has_min(kFormat) || kFormat.scales == ScaleKind::kSuper16) {
      out.second[half] = tile.second;
    }
    for (int j = 0; j < 8; ++j) {
      __m256i even = even_bytes(tile.codes[j]);
      __m256i odd = odd_bytes(tile.codes[j]);
      if constexpr (kFormat.bias != 0) {
        even = _mm256_sub_epi16(even, bias);
        odd = _mm256_sub_epi16(odd, bias);
      }
      _mm256_store_si256(reinterpret_cast<__m256i*>(out.words[2 * j][half]), even);
      _mm256_store_si256(reinterpret_cast<__m256i*>(out.words[2 * j + 1][half]), odd);
    }
  }
}

// Of the type that the sums have inside: g++ keeps an array of __m256i in memory as well.
using I8 = int32_t __attribute__((vector_size(32)));

// acc[R][2] += the tile's registers [kFirst, kFirst + kN) times R rows, scaled by `scale`, and for
// types with a min += `min` times the rows' `sums`. I = 0 … 2 R - 1. Not inlined, lest g++ load all
// weights first.
template <TensorType kType, int kFirst, int kN, int... I>
[[gnu::noinline]] void word_block(std::integer_sequence<int, I...>, const WordTile& tile,
                                  const __m256* scale, const int8_t* values, const float* sums,
                                  float* acc) {
  constexpr TileFormat kFormat = tile_format(kType);
  I8 dots[] = {((void)I, I8{})...};
#pragma GCC unroll 1
  for (int j = kFirst; j < kFirst + kN; ++j) {
    const int8_t* x = values + 4 * j;
    ((dots[I] +=
      (I8)_mm256_madd_epi16(load256(tile.words[j][I % 2]), broadcast4(x + 64 * (I / 2)))),
     ...);
  }
  const auto finish = [&](__m256i dot, int row, int half, float* a) __attribute__((always_inline)) {
    __m256 sum = add_scaled(_mm256_load_ps(a), dot, scale[half]);
    if constexpr (has_min(kFormat)) {
      sum = add_min<kFormat.scales>(sum, tile.second[half], sums[row]);
    }
    _mm256_store_ps(a, sum);
  };
  (finish((__m256i)dots[I], I / 2, I % 2, acc + kHalfOutputs * I), ...);
}

template <TensorType kType, int R>
inline void word_rows(const WordTile& tile, const int8_t* values, const float* sums, float* acc) {
  constexpr std::make_integer_sequence<int, 2 * R> kAll;
  if constexpr (tile_format(kType).scales == ScaleKind::kSuper16) {
    word_block<kType, 0, 8>(kAll, tile, tile.scale, values, sums, acc);
    word_block<kType, 8, 8>(kAll, tile, tile.second, values, sums, acc);
  } else {
    word_block<kType, 0, 16>(kAll, tile, tile.scale, values, sums, acc);
  }
}

template <TensorType kType>
inline void add_rows(const uint8_t* strip, const uint8_t* codes, int64_t b, const int8_t* values,
                     const void* offsets, int n_rows, float* acc) {
  constexpr int kOffsets = tile_format(kType).scales == ScaleKind::kSuper16 ? 2 : 1;
  if (n_rows < kMinWidenedRows) {
    for (int half = 0; half < 2; ++half) {
      HalfTile tile;
      load_half_tile<kType>(strip, codes, b, half, tile);
      for (int r = 0; r < n_rows; ++r) {
        add_row<kType>(tile, values + 64 * r, static_cast<const int32_t*>(offsets) + kOffsets * r,
                       acc + kStripOutputs * r + kHalfOutputs * half);
      }
    }
    return;
  }
  WordTile tile;
  widen_tile<kType>(strip, codes, b, tile);
  int r = 0;
  const auto rows = [&]<int R>() {
    word_rows<kType, R>(tile, values + 64 * r, static_cast<const float*>(offsets) + r,
                        acc + kStripOutputs * r);
    r += R;
  };
  while (n_rows - r >= 4) rows.template operator()<4>();
  if (n_rows - r >= 2) rows.template operator()<2>();
  if (n_rows - r >= 1) rows.template operator()<1>();
}

// The first n of 16 outputs.
inline void store_outputs(float* y, __m256 low, __m256 high, int n) {
  if (n == kStripOutputs) {
    _mm256_storeu_ps(y, low);
    _mm256_storeu_ps(y + kHalfOutputs, high);
    return;
  }
  alignas(32) float all[kStripOutputs];
  _mm256_store_ps(all, low);
  _mm256_store_ps(all + kHalfOutputs, high);
  for (int i = 0; i < n; ++i) y[i] = all[i];
}

template <TensorType kType>
void quantized_strip(const StripCall& call) {
  constexpr TileFormat kFormat = tile_format(kType);
  constexpr int kCodeBytes = tile_code_bytes(kFormat);
  constexpr int64_t kOffsets = kFormat.scales == ScaleKind::kSuper16 ? 2 : 1;
  alignas(32) float acc[kMaxPanelRows * kStripOutputs];
  const int n_rows = call.n_rows;
  for (int i = 0; i < 2 * n_rows; ++i) _mm256_store_ps(acc + 8 * i, _mm256_setzero_ps());
  const int64_t n_tiles = call.n_in / kTileInputs;
  const uint8_t* codes = call.strip + strip_scale_bytes(kFormat, n_tiles);
  const int8_t* values = call.panel->values;
  const auto* offsets = static_cast<const int32_t*>(call.offsets);
  for (int64_t b = 0; b < n_tiles; ++b) {
    for (int i = 0; i < kCodeBytes; i += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(codes + kPrefetchBytes + i), _MM_HINT_T0);
    }
    add_rows<kType>(call.strip, codes, b, values, offsets, n_rows, acc);
    codes += kCodeBytes;
    values += 64 * n_rows;
    offsets += kOffsets * n_rows;
  }
  for (int r = 0; r < n_rows; ++r) {
    const __m256 scale = _mm256_set1_ps(call.panel->scales[r]);
    const float* a = acc + kStripOutputs * r;
    store_outputs(call.y + r * call.y_stride, _mm256_mul_ps(_mm256_load_ps(a), scale),
                  _mm256_mul_ps(_mm256_load_ps(a + kHalfOutputs), scale), call.n_outputs);
  }
}

// ---- float types

template <TensorType kType>
inline __m256 load_weights(const uint8_t* strip, int64_t i, int half) {
  if constexpr (kType == TensorType::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(strip) + 16 * i + 8 * half);
  } else if constexpr (kType == TensorType::kF16) {
    return load_half8(strip + 32 * i + 16 * half);
  } else {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(strip + 32 * i + 16 * half));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
  }
}

// Partial sum p adds the products of the inputs i ≡ p (mod 4), in order.
template <TensorType kType>
void float_strip(const StripCall& call) {
  for (int r = 0; r < call.n_rows; ++r) {
    const float* x = call.x + r * call.n_in;
    __m256 sum[2];
    for (int half = 0; half < 2; ++half) {
      __m256 acc[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                       _mm256_setzero_ps()};
      int64_t i = 0;
      const auto step = [&](int p) {
        const __m256 w = load_weights<kType>(call.strip, i + p, half);
        acc[p] = _mm256_add_ps(acc[p], _mm256_mul_ps(w, _mm256_set1_ps(x[i + p])));
      };
      for (; i + 4 <= call.n_in; i += 4) {
        step(0);
        step(1);
        step(2);
        step(3);
      }
      for (int p = 0; i + p < call.n_in; ++p) step(p);
      sum[half] = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
    }
    store_outputs(call.y + r * call.y_stride, sum[0], sum[1], call.n_outputs);
  }
}

template <StripKernel kOne>
void each_strip(const StripCall& call) {
  StripCall part = call;
  for (int left = call.n_outputs; left > 0; left -= kStripOutputs) {
    part.n_outputs = left < kStripOutputs ? left : kStripOutputs;
    kOne(part);
    part.strip += call.strip_bytes;
    part.y += kStripOutputs;
  }
}

// ---- activations

inline int32_t reduce_max(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(1, 0, 3, 2)));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm_cvtsi128_si32(m);
}

inline int32_t reduce_add(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(1, 0, 3, 2)));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm_cvtsi128_si32(s);
}

}  // namespace

void avx2_quantize_row(const float* x, int64_t n, const ActivationPanel& panel, int row) {
  __m256i largest = _mm256_setzero_si256();
  const __m256i no_sign = _mm256_set1_epi32(0x7FFFFFFF);
  for (int64_t i = 0; i < n; i += 8) {
    largest = _mm256_max_epi32(largest, _mm256_and_si256(load256(x + i), no_sign));
  }
  const int32_t largest_bits = reduce_max(largest);
  float max;
  __builtin_memcpy(&max, &largest_bits, sizeof max);
  const bool finite = largest_bits < 0x7F800000;
  const bool zero = !finite || max < kSmallestActivation;
  panel.scales[row] = !finite ? __builtin_nanf("")
                      : zero  ? 0.0F
                              : max / static_cast<float>(kActivationMax);
  const __m256 inverse = _mm256_set1_ps(zero ? 0.0F : static_cast<float>(kActivationMax) / max);
  const __m256 take = _mm256_castsi256_ps(_mm256_set1_epi32(zero ? 0 : -1));
  int8_t* values = panel.values + 64 * row;
  int32_t* sums = panel.sums + 2 * row;
  for (int64_t i = 0; i < n; i += kActivationBlock) {
    for (int half = 0; half < 2; ++half) {
      __m256i q[2];
      for (int k = 0; k < 2; ++k) {
        const __m256 v = _mm256_and_ps(_mm256_loadu_ps(x + i + 16 * half + 8 * k), take);
        q[k] = _mm256_cvtps_epi32(_mm256_mul_ps(v, inverse));
      }
      constexpr int kOrder = _MM_SHUFFLE(3, 1, 2, 0);  // of words: see ActivationPanel
      const __m256i words =
          _mm256_permute4x64_epi64(_mm256_packs_epi32(q[0], q[1]), _MM_SHUFFLE(3, 1, 2, 0));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + 32 * half),
                          _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, kOrder), kOrder));
      sums[half] = reduce_add(_mm256_add_epi32(q[0], q[1]));
    }
    values += 64 * panel.n_rows;
    sums += 2 * panel.n_rows;
  }
}

StripKernel avx2_strip_kernel(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return each_strip<float_strip<TensorType::kF32>>;
    case TensorType::kF16:
      return each_strip<float_strip<TensorType::kF16>>;
    case TensorType::kBF16:
      return each_strip<float_strip<TensorType::kBF16>>;
    case TensorType::kQ4_0:
      return each_strip<quantized_strip<TensorType::kQ4_0>>;
    case TensorType::kQ4_1:
      return each_strip<quantized_strip<TensorType::kQ4_1>>;
    case TensorType::kQ5_0:
      return each_strip<quantized_strip<TensorType::kQ5_0>>;
    case TensorType::kQ5_1:
      return each_strip<quantized_strip<TensorType::kQ5_1>>;
    case TensorType::kQ8_0:
      return each_strip<quantized_strip<TensorType::kQ8_0>>;
    case TensorType::kQ4_K:
      return each_strip<quantized_strip<TensorType::kQ4_K>>;
    case TensorType::kQ5_K:
      return each_strip<quantized_strip<TensorType::kQ5_K>>;
    case TensorType::kQ6_K:
      return each_strip<quantized_strip<TensorType::kQ6_K>>;
  }
  return nullptr;
}

}  // namespace baton::linalg
