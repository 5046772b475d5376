// The AVX-512 VNNI inner loops of the decode class. The .cc files are compiled with AVX-512 flags;
// they use no templates or inline functions of others, so that no code with those instructions can
// be picked by the linker for a CPU that lacks them.
#pragma once

#include <cstdint>

#include "base/tensor_type.h"

namespace baton::linalg {

/// From so many rows on a panel holds words of 16 bits: tiles are widened once for all of them.
inline constexpr int kMinWordRows = 8;

/// A panel of rows for the quantised types, block-major: what a tile needs lies together.
struct ActivationPanel {
  /// [n_blocks][n_rows][64 bytes]. Below kMinWordRows rows: of each 32 values of a row the high
  /// bytes, then the low ones. Else: the 32 values as int16, of each four the order 0 2 1 3.
  int8_t* values;
  int32_t* sums;  ///< [n_blocks][n_rows][2]: sums of the integers of each 16 values
  float* scales;  ///< [n_rows]
  int n_rows;
};

/// Quantises row `row` of the panel: the integers and the scale of quantize_row() (activations.h).
void avx512_quantize_row(const float* x, int64_t n, const ActivationPanel& panel, int row);

/// Consecutive strips (tiles.h) times a panel of rows.
struct StripCall {
  const uint8_t* strip;  ///< the first one
  int64_t strip_bytes;
  int n_strips;
  int64_t n_in;
  const float* x;                ///< float types: rows [n_rows][n_in]
  const ActivationPanel* panel;  ///< quantised types
  /// Quantised types: for types with a min float[n_blocks][n_rows], the sums; else
  /// int32[n_blocks][n_rows] (Q6_K: [n_blocks][n_rows][2]), the sums times the bias.
  const void* offsets;
  int n_rows;  ///< at most kMaxPanelRows
  float* y;    ///< the strip's first output of the panel's first row
  int64_t y_stride;
  int n_outputs;  ///< of the strips that exist: the last one may have fewer than 16
};

/// A multiple of the six rows of a register block; their sums for four strips are 12 KiB.
inline constexpr int kMaxPanelRows = 48;

using StripKernel = void (*)(const StripCall&);
/// For any number of strips and rows.
[[nodiscard]] StripKernel avx512_strip_kernel(TensorType type);
/// Its part for at least kMinWordRows rows and 1, 2 or 4 strips; null for a float type.
[[nodiscard]] StripKernel avx512_word_kernel(TensorType type);

}  // namespace baton::linalg
