// The row kernels as their formulas say, with the C library's functions: the yardstick of the
// others.
#include <bit>
#include <cmath>

#include "linalg/half.h"
#include "linalg/row_kernels.h"

namespace baton::linalg {
namespace {

void rms_norm_row(const float* x, const float* weight, float eps, int64_t n, float* y) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * x[i];
  const auto factor = static_cast<float>(1 / std::sqrt(sum / static_cast<double>(n) + eps));
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor * weight[i];
}

/// The pair (a, b) turned by the angle.
void turn(float& a, float& b, float cos, float sin) {
  const float turned = a * cos - b * sin;
  b = a * sin + b * cos;
  a = turned;
}

void rope_interleaved_row(float* x, const float* cos, const float* sin, int64_t n_pairs) {
  for (int64_t i = 0; i < n_pairs; ++i) turn(x[2 * i], x[2 * i + 1], cos[i], sin[i]);
}

void rope_half_row(float* x, const float* cos, const float* sin, int64_t n_pairs) {
  for (int64_t i = 0; i < n_pairs; ++i) turn(x[i], x[i + n_pairs], cos[i], sin[i]);
}

void silu_row(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
}

void gelu_tanh_row(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = gate[i];
    const float inner = 0.7978845608028654F * (g + 0.044715F * g * g * g);  // sqrt(2/π)
    y[i] = 0.5F * g * (1 + std::tanh(inner)) * up[i];
  }
}

void add_row(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

void scale_row(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

void to_bf16_row(const float* x, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = float_to_bf16(x[i]);
}

void from_bf16_row(const uint16_t* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = bf16_to_float(x[i]);
}

}  // namespace

const RowKernels kRowKernelsReference = {
    rms_norm_row, rope_interleaved_row, rope_half_row, silu_row, gelu_tanh_row, add_row,
    scale_row,    to_bf16_row,          from_bf16_row,
};

}  // namespace baton::linalg
