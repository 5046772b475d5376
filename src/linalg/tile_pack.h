// From the rows of a file to the strips of tiles.h.
#pragma once

#include <cstdint>

#include "linalg/linear.h"

namespace baton::linalg {

/// Bytes of one strip, a multiple of 64.
[[nodiscard]] int64_t strip_bytes(TensorType type, int64_t n_in);

/// Writes the strip of outputs [first, first + 16) of `matrix`; outputs beyond its last are zeros.
void pack_strip(const MatrixView& matrix, int64_t first, uint8_t* strip);

}  // namespace baton::linalg
