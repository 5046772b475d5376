// Linear on strips (tiles.h), for the instruction sets that have kernels for them: AVX-512 VNNI
// (kAvx512, kAmx) and AVX2 (kAvx2, which has none for 8-bit activations).
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "linalg/kernels.h"
#include "linalg/linear.h"
#include "linalg/strips.h"

namespace baton::linalg {

/// Repacks `stacked` (checked by make_linear) into strips. kExhausted when memory is short.
[[nodiscard]] Result<std::unique_ptr<Linear>> make_strip_linear(Context& context,
                                                                const StripKernels& kernels,
                                                                std::span<const MatrixView> stacked,
                                                                PackedFile* file);

}  // namespace baton::linalg
