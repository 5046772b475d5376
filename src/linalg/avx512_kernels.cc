#include "linalg/avx512_kernels.h"

#include "linalg/activations.h"
#include "linalg/avx512_tile.h"

namespace baton::linalg {
namespace {

// How far ahead of the codes that are multiplied the next ones are asked for: one row is done with
// a strip in less time than memory takes to answer.
constexpr int kPrefetchBytes = 8192;

// ---- a tile times R rows

// Exact dot products of registers [first, first + n) of the tile with R rows, as 128 * high + low.
template <int kFirst, int kN, int R>
inline void dot_rows(const Tile& tile, const int8_t* planes, __m512i* sums) {
  if constexpr (R == 1) {
    // Alone, a row needs chains that do not wait for one another.
    __m512i chain[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                        _mm512_setzero_si512()};
    for (int j = kFirst; j < kFirst + kN; ++j) {
      chain[j & 1] = _mm512_dpbusd_epi32(chain[j & 1], tile.codes[j], broadcast4(planes + 4 * j));
      chain[2 + (j & 1)] =
          _mm512_dpbusd_epi32(chain[2 + (j & 1)], tile.codes[j], broadcast4(planes + 32 + 4 * j));
    }
    const __m512i high = _mm512_add_epi32(chain[0], chain[1]);
    const __m512i low = _mm512_add_epi32(chain[2], chain[3]);
    sums[0] = _mm512_add_epi32(_mm512_slli_epi32(high, 7), low);
  } else {
    __m512i low[R];
    for (int r = 0; r < R; ++r) sums[r] = low[r] = _mm512_setzero_si512();
    for (int j = kFirst; j < kFirst + kN; ++j) {
      for (int r = 0; r < R; ++r) {
        sums[r] = _mm512_dpbusd_epi32(sums[r], tile.codes[j], broadcast4(planes + 64 * r + 4 * j));
        low[r] =
            _mm512_dpbusd_epi32(low[r], tile.codes[j], broadcast4(planes + 64 * r + 32 + 4 * j));
      }
    }
    for (int r = 0; r < R; ++r) sums[r] = _mm512_add_epi32(_mm512_slli_epi32(sums[r], 7), low[r]);
  }
}

// Adds the tile's part to the sums of R rows. The order of the float operations is the contract
// with the portable kernel: for each group acc += sum * scale, then acc += min * sum of
// activations.
template <TensorType kType, int R>
inline void tile_rows(const Tile& tile, const int8_t* planes, const void* offsets, float* acc) {
  constexpr TileFormat kFormat = tile_format(kType);
  const auto* integers = static_cast<const int32_t*>(offsets);
  __m512i sums[R];
  if constexpr (kFormat.scales == ScaleKind::kSuper16) {
    __m512i later[R];
    dot_rows<0, 4, R>(tile, planes, sums);
    dot_rows<4, 4, R>(tile, planes, later);
    for (int r = 0; r < R; ++r) {
      __m512 a = _mm512_load_ps(acc + 16 * r);
      a = add_scaled(a, less(sums[r], integers[2 * r]), tile.scale);
      a = add_scaled(a, less(later[r], integers[2 * r + 1]), tile.second);
      _mm512_store_ps(acc + 16 * r, a);
    }
    return;
  }
  dot_rows<0, 8, R>(tile, planes, sums);
  for (int r = 0; r < R; ++r) {
    __m512 a = _mm512_load_ps(acc + 16 * r);
    if constexpr (has_min(kFormat)) {
      a = add_scaled(a, sums[r], tile.scale);
      a = add_min<kFormat.scales>(a, tile.second, static_cast<const float*>(offsets)[r]);
    } else {
      a = add_scaled(a, less(sums[r], integers[r]), tile.scale);
    }
    _mm512_store_ps(acc + 16 * r, a);
  }
}

template <TensorType kType>
void quantized_strip(const StripCall& call) {
  constexpr TileFormat kFormat = tile_format(kType);
  constexpr int64_t kOffsets =
      kFormat.scales == ScaleKind::kSuper16 ? 2 : 1;  // for each row and block
  alignas(64) float acc[kMaxPanelRows * kStripOutputs];
  const int n_rows = call.n_rows;
  for (int r = 0; r < n_rows; ++r) _mm512_store_ps(acc + 16 * r, _mm512_setzero_ps());
  const int64_t n_tiles = call.n_in / kTileInputs;
  const uint8_t* codes = call.strip + strip_scale_bytes(kFormat, n_tiles);
  const int8_t* planes = call.panel->values;
  const auto* offsets = static_cast<const int32_t*>(call.offsets);
  for (int64_t b = 0; b < n_tiles; ++b) {
    prefetch<tile_code_bytes(kFormat)>(codes + kPrefetchBytes);
    Tile tile;
    load_scales<kFormat.scales>(call.strip, b, tile);
    load_codes<kFormat.bits>(codes, tile.codes);
    const auto rows = [&]<int R>(int r) {
      tile_rows<kType, R>(tile, planes + 64 * r, offsets + kOffsets * r, acc + 16 * r);
    };
    int r = 0;

    for (; r + 4 <= n_rows; r += 4) rows.template operator()<4>(r);
    if (n_rows - r == 3) rows.template operator()<3>(r);
    if (n_rows - r == 2) rows.template operator()<2>(r);
    if (n_rows - r == 1) rows.template operator()<1>(r);
    codes += tile_code_bytes(kFormat);
    planes += 64 * n_rows;
    offsets += kOffsets * n_rows;
  }
  const __mmask16 mask = output_mask(call.n_outputs);
  for (int r = 0; r < n_rows; ++r) {
    const __m512 y =
        _mm512_mul_ps(_mm512_load_ps(acc + 16 * r), _mm512_set1_ps(call.panel->scales[r]));
    _mm512_mask_storeu_ps(call.y + r * call.y_stride, mask, y);
  }
}

// A few rows strip by strip; one, and many, with four strips side by side, what is left with two or
// one.
template <TensorType kType>
void quantized_strips(const StripCall& call) {
  const PanelLayout layout = call.panel->layout;
  const bool alone = call.n_rows == 1 && layout == PanelLayout::kPlanes;
  const bool abreast = alone || layout != PanelLayout::kPlanes;
  const StripKernel kernel = layout == PanelLayout::kWords   ? avx512_word_kernel(kType)
                             : layout == PanelLayout::kBytes ? avx512_byte_kernel(kType)
                             : alone                         ? avx512_row_kernel(kType)
                                                             : quantized_strip<kType>;
  StripCall part = call;
  for (int done = 0; done < call.n_strips; done += part.n_strips) {
    const int left = call.n_strips - done;
    const int outputs_left = call.n_outputs - done * kStripOutputs;
    part.n_strips = !abreast || left == 1 ? 1 : left < 4 ? 2 : 4;
    part.n_outputs = part.n_strips * kStripOutputs;
    if (part.n_outputs > outputs_left) part.n_outputs = outputs_left;
    part.strip = call.strip + done * call.strip_bytes;
    part.y = call.y + done * kStripOutputs;
    kernel(part);
  }
}

// ---- float types

template <TensorType kType>
inline __m512 load_weights(const uint8_t* strip, int64_t i) {
  if constexpr (kType == TensorType::kF32) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(strip) + 16 * i);
  } else if constexpr (kType == TensorType::kF16) {
    return load_half16(strip + 32 * i);
  } else {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(strip + 32 * i));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
}

// R rows; partial sum p adds the products of the inputs i ≡ p (mod 4), in order.
template <TensorType kType, int R>
inline void float_rows(const StripCall& call, int first) {
  const float* x = call.x + first * call.n_in;
  __m512 acc[R][4];
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < 4; ++p) acc[r][p] = _mm512_setzero_ps();
  }
  const auto step = [&](int64_t i, int p) {
    const __m512 w = load_weights<kType>(call.strip, i);
    for (int r = 0; r < R; ++r) {
      acc[r][p] = _mm512_add_ps(acc[r][p], _mm512_mul_ps(w, _mm512_set1_ps(x[r * call.n_in + i])));
    }
  };
  int64_t i = 0;
  for (; i + 4 <= call.n_in; i += 4) {
    step(i, 0);
    step(i + 1, 1);
    step(i + 2, 2);
    step(i + 3, 3);
  }
  if (i < call.n_in) step(i, 0);
  if (i + 1 < call.n_in) step(i + 1, 1);
  if (i + 2 < call.n_in) step(i + 2, 2);
  const __mmask16 mask = output_mask(call.n_outputs);
  for (int r = 0; r < R; ++r) {
    const __m512 y =
        _mm512_add_ps(_mm512_add_ps(acc[r][0], acc[r][1]), _mm512_add_ps(acc[r][2], acc[r][3]));
    _mm512_mask_storeu_ps(call.y + (first + r) * call.y_stride, mask, y);
  }
}

template <TensorType kType>
void float_strips(const StripCall& call) {
  StripCall part = call;
  for (int left = call.n_outputs; left > 0; left -= kStripOutputs) {
    part.n_outputs = left < kStripOutputs ? left : kStripOutputs;
    int r = 0;
    for (; r + 4 <= call.n_rows; r += 4) float_rows<kType, 4>(part, r);
    for (; r < call.n_rows; ++r) float_rows<kType, 1>(part, r);
    part.strip += call.strip_bytes;
    part.y += kStripOutputs;
  }
}

// ---- activations

// 16 integers as 16 high and 16 low bytes: q = 128 * high + low, -64 <= low < 64.
inline void store_planes(__m512i q, int8_t* planes) {
  const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(64)), 7);
  const __m512i low = _mm512_sub_epi32(q, _mm512_slli_epi32(high, 7));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(planes), _mm512_cvtepi32_epi8(high));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(planes + 32), _mm512_cvtepi32_epi8(low));
}

// 16 integers as words, of each four the order 0 2 1 3: the even bytes of a register of codes meet
// words 0 and 2, the odd ones 1 and 3.
inline void store_words(__m512i q, int8_t* words) {
  constexpr int kOrder = _MM_SHUFFLE(3, 1, 2, 0);
  const __m256i w = _mm512_cvtepi32_epi16(q);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words),
                      _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(w, kOrder), kOrder));
}

}  // namespace

void avx512_quantize_row(const float* x, int64_t n, const ActivationPanel& panel, int row) {
  __m512i largest = _mm512_setzero_si512();
  const __m512i no_sign = _mm512_set1_epi32(0x7FFFFFFF);
  for (int64_t i = 0; i < n; i += 16) {
    largest = _mm512_max_epi32(largest, _mm512_and_si512(load512(x + i), no_sign));
  }
  const int32_t largest_bits = _mm512_reduce_max_epi32(largest);
  float max;
  __builtin_memcpy(&max, &largest_bits, sizeof max);
  const bool finite = largest_bits < 0x7F800000;
  const bool zero = !finite || max < kSmallestActivation;
  panel.scales[row] = !finite ? __builtin_nanf("")
                      : zero  ? 0.0F
                              : max / static_cast<float>(kActivationMax);
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0F : static_cast<float>(kActivationMax) / max);
  const __mmask16 take = zero ? 0 : 0xFFFF;
  int8_t* values = panel.values + 64 * row;
  int32_t* sums = panel.sums + 2 * row;
  for (int64_t i = 0; i < n; i += kActivationBlock) {
    for (int half = 0; half < 2; ++half) {
      const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(take, x + i + 16 * half), inverse);
      const __m512i q = _mm512_cvtps_epi32(scaled);
      if (panel.layout == PanelLayout::kWords) {
        store_words(q, values + 32 * half);
      } else {
        store_planes(q, values + 16 * half);
      }
      sums[half] = _mm512_reduce_add_epi32(q);
    }
    values += 64 * panel.n_rows;
    sums += 2 * panel.n_rows;
  }
}

StripKernel avx512_strip_kernel(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return float_strips<TensorType::kF32>;
    case TensorType::kF16:
      return float_strips<TensorType::kF16>;
    case TensorType::kBF16:
      return float_strips<TensorType::kBF16>;
    case TensorType::kQ4_0:
      return quantized_strips<TensorType::kQ4_0>;
    case TensorType::kQ4_1:
      return quantized_strips<TensorType::kQ4_1>;
    case TensorType::kQ5_0:
      return quantized_strips<TensorType::kQ5_0>;
    case TensorType::kQ5_1:
      return quantized_strips<TensorType::kQ5_1>;
    case TensorType::kQ8_0:
      return quantized_strips<TensorType::kQ8_0>;
    case TensorType::kQ4_K:
      return quantized_strips<TensorType::kQ4_K>;
    case TensorType::kQ5_K:
      return quantized_strips<TensorType::kQ5_K>;
    case TensorType::kQ6_K:
      return quantized_strips<TensorType::kQ6_K>;
  }
  return nullptr;
}

}  // namespace baton::linalg
