// What this machine can do at most, measured: the yardsticks that `baton bench` puts beside the
// model's own rates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "linalg/kernels.h"

namespace baton::linalg {

/// Bytes/s at which the threads of the pool together read `memory` (each its own share, from end to
/// end, nothing else), the best of a few ways to walk: one or four streams a thread, with and
/// without prefetching over page borders. At least one full pass each. Empty memory: 0.
[[nodiscard]] double measure_read_rate(Context& context, std::span<const std::byte> memory,
                                       const Clock& clock);

/// y [n, n_out] = x [n, n_in] · Wᵀ, `count` of them in a model.
struct ProductShape {
  std::string name;
  int64_t n_in = 0;
  int64_t n_out = 0;
  int64_t count = 1;
};

/// The best that was measured for one shape.
struct ProductRate {
  double flops_per_s = 0;  ///< of all threads together
  int64_t n_rows = 0;      ///< rows of activations a call that gave it
  bool bf16 = false;
  std::string implementation;  ///< oneDNN's word for it
};

/// oneDNN's own rate on one shape: each thread of the pool multiplies its own panel of rows with
/// the whole packed matrix, again and again, so nothing comes from memory that a cache can hold.
/// Tried with 64, 128 and 256 rows, in float32 and bf16 (whatever the kernel set's cap on
/// instruction sets allows), about `milliseconds` each; the best counts. kUnsupported if oneDNN
/// can do none of them here.
[[nodiscard]] Result<ProductRate> measure_product_rate(Context& context, const ProductShape& shape,
                                                       const Clock& clock, double milliseconds);

}  // namespace baton::linalg
