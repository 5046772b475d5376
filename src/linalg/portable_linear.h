// The decode class of Linear in plain C++ (kernel set kPortable): the same integers and the same
// order of float operations as the AVX-512 one, so the same bits.
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "linalg/kernels.h"
#include "linalg/linear.h"

namespace baton::linalg {

/// Keeps a copy of the blocks of `stacked` (checked by make_linear). kExhausted when memory is
/// short.
[[nodiscard]] Result<std::unique_ptr<Linear>> make_portable_linear(
    Context& context, std::span<const MatrixView> stacked);

}  // namespace baton::linalg
