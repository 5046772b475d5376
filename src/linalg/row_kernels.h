// The row-wise inner loops behind ops.h, once for each instruction set. Internal to src/linalg.
//
// All functions are pure: thread-safe, no alignment wanted, a result depends only on its own row.
#pragma once

#include <cstdint>

namespace baton::linalg {

enum class KernelSet;  // kernels.h

/// Function pointers of one instruction set.
struct RowKernels {
  /// y = x / sqrt(mean(x²) + eps) * weight over n values; y may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y);
  /// Rotates pairs (2i, 2i+1), i < n_pairs, of x in place; cos, sin [n_pairs].
  void (*rope_interleaved)(float* x, const float* cos, const float* sin, int64_t n_pairs);
  /// Rotates pairs (i, i + n_pairs).
  void (*rope_half)(float* x, const float* cos, const float* sin, int64_t n_pairs);
  /// y = act(gate) * up.
  void (*silu)(const float* gate, const float* up, int64_t n, float* y);
  void (*gelu_tanh)(const float* gate, const float* up, int64_t n, float* y);
  /// x += y.
  void (*add)(float* x, const float* y, int64_t n);
  /// x *= factor.
  void (*scale)(float* x, float factor, int64_t n);
  /// float32 → bfloat16, nearest even, and back (exact).
  void (*to_bf16)(const float* x, int64_t n, uint16_t* y);
  void (*from_bf16)(const uint16_t* x, int64_t n, float* y);
};

extern const RowKernels kRowKernelsReference;
extern const RowKernels kRowKernelsPortable;
#if defined(__x86_64__)
extern const RowKernels kRowKernelsAvx2;
extern const RowKernels kRowKernelsAvx512;  ///< F, BW, DQ, VL
#endif

/// The table for a kernel set.
[[nodiscard]] const RowKernels& row_kernels(KernelSet kernels);

}  // namespace baton::linalg
