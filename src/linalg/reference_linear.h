// The yardstick: float32 weights, float32 sums, no intrinsics.
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "linalg/kernels.h"
#include "linalg/linear.h"

namespace baton::linalg {

/// Widens `stacked` (checked by make_linear) to float32. kExhausted when memory is short.
[[nodiscard]] Result<std::unique_ptr<Linear>> make_reference_linear(
    Context& context, std::span<const MatrixView> stacked);

}  // namespace baton::linalg
