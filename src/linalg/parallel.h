// How the kernels of this folder use the pool. Internal to src/linalg.
#pragma once

#include <atomic>
#include <cstdint>

#include "linalg/kernels.h"

namespace baton::linalg {

/// Calls over at most so many float32 values run on the caller: they take about as long as waking
/// the pool. Which thread computes a row never changes its bits.
inline constexpr int64_t kInlineValues = 16 * 1024;

/// fn(row) for every row in [0, n_rows), over the pool where that pays.
template <typename Fn>
void for_rows(Context& context, int64_t n_rows, int64_t values_per_row, Fn&& fn) {
  if (n_rows < 2 || n_rows * values_per_row <= kInlineValues) {
    for (int64_t row = 0; row < n_rows; ++row) fn(row);
    return;
  }
  context.pool.for_ranges(n_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) fn(row);
  });
}

/// fn(thread, unit) for every unit in [0, n_units), in rising order, each taken by the next free
/// thread of the pool; on the caller alone if not `parallel`. For units of uneven cost, the dear
/// ones first.
template <typename Fn>
void for_units(Context& context, int64_t n_units, bool parallel, Fn&& fn) {
  if (!parallel || n_units < 2) {
    for (int64_t unit = 0; unit < n_units; ++unit) fn(0, unit);
    return;
  }
  std::atomic<int64_t> next{0};
  context.pool.run([&](int thread) {
    for (int64_t unit = next.fetch_add(1); unit < n_units; unit = next.fetch_add(1)) {
      fn(thread, unit);
    }
  });
}

}  // namespace baton::linalg
