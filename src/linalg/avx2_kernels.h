// The AVX2 inner loops of the decode class, on the strips of tiles.h. The .cc file is the only one
// compiled with AVX2 flags for them; as with avx512_kernels.h it uses no templates or inline
// functions of others.
#pragma once

#include "linalg/strips.h"

namespace baton::linalg {

/// Quantises row `row` of a panel of words: the integers and the scale of quantize_row()
/// (activations.h).
void avx2_quantize_row(const float* x, int64_t n, const ActivationPanel& panel, int row);

/// For any number of strips and rows.
[[nodiscard]] StripKernel avx2_strip_kernel(TensorType type);

}  // namespace baton::linalg
