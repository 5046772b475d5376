// The decode class of Linear for AVX-512 VNNI (kernel sets kAvx512 and kAmx).
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "linalg/kernels.h"
#include "linalg/linear.h"

namespace baton::linalg {

/// Repacks `stacked` (checked by make_linear) into tiles (tiles.h). kExhausted when memory is
/// short.
[[nodiscard]] Result<std::unique_ptr<Linear>> make_avx512_linear(
    Context& context, std::span<const MatrixView> stacked);

}  // namespace baton::linalg
