// The AVX-512 VNNI inner loops on the strips of tiles.h. The .cc files are
// compiled with AVX-512 flags; they use no templates or inline functions of others, so that no code
// with those instructions can be picked by the linker for a CPU that lacks them.
#pragma once

#include "linalg/strips.h"

namespace baton::linalg {

/// From so many rows on a panel holds words of 16 bits: tiles are widened once for all of them.
inline constexpr int kAvx512MinWordRows = 8;

/// Quantises row `row` of the panel: the integers and the scale of quantize_row() (activations.h).
void avx512_quantize_row(const float* x, int64_t n, const ActivationPanel& panel, int row);

/// For any number of strips and rows.
[[nodiscard]] StripKernel avx512_strip_kernel(TensorType type);
/// Its part for one row that is not of words and 1, 2 or 4 strips; null for a float type.
[[nodiscard]] StripKernel avx512_row_kernel(TensorType type);
/// Its part for panels of words and 1, 2 or 4 strips; null for a float type.
[[nodiscard]] StripKernel avx512_word_kernel(TensorType type);

/// Quantises row `row` of a panel of bytes, as quantize_block() (activations.h) does each block.
void avx512_quantize_blocks(const float* x, int64_t n, const ActivationPanel& panel, int row);
/// The part of avx512_strip_kernel for panels of bytes and 1, 2 or 4 strips; null for a float type.
[[nodiscard]] StripKernel avx512_byte_kernel(TensorType type);

}  // namespace baton::linalg
