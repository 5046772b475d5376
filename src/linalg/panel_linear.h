// The prefill class of Linear: bf16 weights packed for oneDNN, on zero-padded panels of a fixed
// number of rows.
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "linalg/kernels.h"
#include "linalg/linear.h"

namespace baton::linalg {

/// Packs `stacked` (checked by make_linear: not empty, equal n_in, whole blocks) for prefill.
[[nodiscard]] Result<std::unique_ptr<Linear>> make_panel_linear(Context& context,
                                                                std::span<const MatrixView> stacked,
                                                                PackedFile* file = nullptr);

}  // namespace baton::linalg
