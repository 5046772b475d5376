// The AVX-512 VNNI inner loops of the decode class. The .cc file is the only one compiled with
// AVX-512 flags; it uses no templates or inline functions of others, so that no code with those
// instructions can be picked by the linker for a CPU that lacks them.
#pragma once

#include <cstdint>

#include "base/tensor_type.h"

namespace baton::linalg {

/// A panel of rows for the quantised types, block-major: what a tile needs lies together.
struct ActivationPanel {
  /// [n_blocks][n_rows][64]: of each 32 values of a row the high bytes, then the low ones.
  int8_t* planes;
  int32_t* sums;  ///< [n_blocks][n_rows][2]: sums of the integers of each 16 values
  float* scales;  ///< [n_rows]
  int n_rows;
};

/// Quantises row `row` of the panel: the integers and the scale of quantize_row() (activations.h).
void avx512_quantize_row(const float* x, int64_t n, const ActivationPanel& panel, int row);

/// One strip (tiles.h) times a panel of rows.
struct StripCall {
  const uint8_t* strip;
  int64_t n_in;
  const float* x;                ///< float types: rows [n_rows][n_in]
  const ActivationPanel* panel;  ///< quantised types
  /// Quantised types: for types with a min float[n_blocks][n_rows], the sums; else
  /// int32[n_blocks][n_rows] (Q6_K: [n_blocks][n_rows][2]), the sums times the bias.
  const void* offsets;
  int n_rows;  ///< at most kMaxPanelRows
  float* y;    ///< the strip's first output of the panel's first row
  int64_t y_stride;
  int n_outputs;  ///< of the strip that exist: 1 … 16
};

inline constexpr int kMaxPanelRows = 64;

using StripKernel = void (*)(const StripCall&);
[[nodiscard]] StripKernel avx512_strip_kernel(TensorType type);

}  // namespace baton::linalg
