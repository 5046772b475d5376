#include "linalg/ops.h"

#include <cmath>

#include "base/check.h"
#include "linalg/parallel.h"
#include "linalg/row_kernels.h"

namespace baton::linalg {
const RowKernels& row_kernels(KernelSet kernels) {
#if defined(__x86_64__)
  if (kernels == KernelSet::kAvx512 || kernels == KernelSet::kAmx) return kRowKernelsAvx512;
  if (kernels == KernelSet::kAvx2) return kRowKernelsAvx2;
#endif
  return kernels == KernelSet::kReference ? kRowKernelsReference : kRowKernelsPortable;
}

void rms_norm(Context& context, const float* x, const float* weight, float eps, int64_t n_rows,
              int64_t n, float* y) {
  const RowKernels& k = row_kernels(context.kernels);
  for_rows(context, n_rows, n,
           [&](int64_t row) { k.rms_norm(x + row * n, weight, eps, n, y + row * n); });
}

void rms_norm_heads(Context& context, HeadRows rows, const float* weight, float eps,
                    int64_t n_rows) {
  const RowKernels& k = row_kernels(context.kernels);
  for_rows(context, n_rows, int64_t{rows.n_heads} * rows.head_dim, [&](int64_t row) {
    float* head = rows.data + row * rows.stride;
    for (int h = 0; h < rows.n_heads; ++h, head += rows.head_dim) {
      k.rms_norm(head, weight, eps, rows.head_dim, head);
    }
  });
}

RopeTable::RopeTable(std::span<const double> inverse_frequencies, int max_positions)
    : n_pairs_(static_cast<int>(inverse_frequencies.size())), max_positions_(max_positions) {
  const size_t n = inverse_frequencies.size() * static_cast<size_t>(max_positions);
  cos_.reserve(n);
  sin_.reserve(n);
  for (int position = 0; position < max_positions; ++position) {
    for (const double frequency : inverse_frequencies) {
      const double angle = position * frequency;
      cos_.push_back(static_cast<float>(std::cos(angle)));
      sin_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

void rope(Context& context, const RopeTable& table, RopeStyle style, std::span<const int> positions,
          HeadRows rows) {
  BATON_CHECK(table.n_rot() <= rows.head_dim);
  const RowKernels& k = row_kernels(context.kernels);
  const auto rotate = style == RopeStyle::kHalf ? k.rope_half : k.rope_interleaved;
  const auto n_rows = static_cast<int64_t>(positions.size());
  for_rows(context, n_rows, int64_t{rows.n_heads} * rows.head_dim, [&](int64_t row) {
    const int position = positions[static_cast<size_t>(row)];
    BATON_CHECK(position >= 0 && position < table.max_positions());
    float* head = rows.data + row * rows.stride;
    for (int h = 0; h < rows.n_heads; ++h, head += rows.head_dim) {
      rotate(head, table.cos(position), table.sin(position), table.n_rot() / 2);
    }
  });
}

void gated_activation(Context& context, GatedActivation activation, const float* gate_up,
                      int64_t n_rows, int64_t n, float* y) {
  const RowKernels& k = row_kernels(context.kernels);
  const auto apply = activation == GatedActivation::kSilu ? k.silu : k.gelu_tanh;
  // An exponential costs as much as some four plain values.
  for_rows(context, n_rows, 4 * n, [&](int64_t row) {
    const float* gate = gate_up + row * 2 * n;
    apply(gate, gate + n, n, y + row * n);
  });
}

void add_in_place(Context& context, float* x, const float* y, int64_t n_rows, int64_t n) {
  const RowKernels& k = row_kernels(context.kernels);
  for_rows(context, n_rows, n, [&](int64_t row) { k.add(x + row * n, y + row * n, n); });
}

void embed(Context& context, const MatrixView& table, std::span<const TokenId> tokens, float scale,
           float* out) {
  const RowKernels& k = row_kernels(context.kernels);
  const size_t bytes = row_bytes(table.type, table.n_in);
  // Unpacking blocks costs as much as some four plain values.
  for_rows(context, static_cast<int64_t>(tokens.size()), 4 * table.n_in, [&](int64_t row) {
    const TokenId token = tokens[static_cast<size_t>(row)];
    BATON_CHECK(token >= 0 && token < table.n_out);
    float* y = out + row * table.n_in;
    dequantize(table.type, table.data + static_cast<size_t>(token) * bytes, table.n_in, y);
    if (scale != 1.0F) k.scale(y, scale, table.n_in);
  });
}

}  // namespace baton::linalg
