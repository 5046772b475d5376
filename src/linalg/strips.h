// What StripLinear and the kernels of an instruction set say to one another. Light: the kernels are
// compiled with flags of their own and must not pick up inline functions of other headers.
#pragma once

#include <cstdint>

#include "base/tensor_type.h"

namespace baton::linalg {

/// What a panel has of each 32 values of a row (activations.h). Of 15 bits kPlanes: the high bytes,
/// then the low ones; kWords: int16, of each four the order 0 2 1 3 (the even bytes of a register
/// of codes meet words 0 and 2, the odd ones 1 and 3). Of 8 bits kBytes: 32 bytes.
enum class PanelLayout : uint8_t { kPlanes, kWords, kBytes };

constexpr int panel_block_bytes(PanelLayout layout) {
  return layout == PanelLayout::kBytes ? 32 : 64;
}

/// A panel of rows for the quantised types, block-major: what a tile needs lies together.
struct ActivationPanel {
  int8_t* values;  ///< [n_blocks][n_rows][panel_block_bytes]
  int32_t* sums;   ///< [n_blocks][n_rows][2]: sums of the integers of each 16 values
  float* scales;   ///< [n_rows]; kBytes: [n_blocks][n_rows]
  int n_rows;
  PanelLayout layout;
};

/// Consecutive strips times a panel of rows.
struct StripCall {
  const uint8_t* strip;  ///< the first one
  int64_t strip_bytes;
  int n_strips;
  int64_t n_in;
  const float* x;                ///< float types: rows [n_rows][n_in]
  const ActivationPanel* panel;  ///< quantised types
  /// Quantised types: for types with a min float[n_blocks][n_rows], the sums (kBytes: times the
  /// block's scale); else int32[n_blocks][n_rows] (Q6_K: [n_blocks][n_rows][2]), the sums times the
  /// bias (kBytes: times minus the bias).
  const void* offsets;
  int n_rows;  ///< at most kMaxPanelRows
  float* y;    ///< the first strip's first output of the panel's first row
  int64_t y_stride;
  int n_outputs;  ///< of the strips that exist: the last one may have fewer than 16
};

/// A multiple of the six rows of a register block; their sums for four strips are 12 KiB.
inline constexpr int kMaxPanelRows = 48;

using StripKernel = void (*)(const StripCall&);

/// The kernels of one instruction set.
struct StripKernels {
  const char* name;
  int min_word_rows;  ///< from so many rows on a panel of 15 bits holds words
  void (*quantize_row)(const float* x, int64_t n, const ActivationPanel& panel, int row);
  /// Row `row` of a panel of kBytes; null where kernels take none.
  void (*quantize_blocks)(const float* x, int64_t n, const ActivationPanel& panel, int row);
  StripKernel (*kernel)(TensorType type);
};

}  // namespace baton::linalg
