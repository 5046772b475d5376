// y = x Wᵀ for weights of any file type, behind one narrow interface with one implementation for
// each kernel set and class.
//
// kPrefill: bf16 weights packed for oneDNN, zero-padded panels of a fixed number of rows; but
//           kAvx512, without matrix units, multiplies quantised weights faster as kDecode does, and
//           faster yet on activations of 8 bits (apply_int8).
// kDecode:  the file's quantised blocks (repacked, never widened) times activations of 15 bits
//           (activations.h), exact integer sums; all sets but kReference have the same bits.
// kReference (either class): float32 weights, float32 sums.
// Rule of "Same bits": row r of y depends only on row r of x, never on n_rows, the other rows or
// the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "base/tensor_type.h"
#include "linalg/kernels.h"

namespace baton::linalg {

/// A matrix as it lies in a file: [n_out][n_in], each row a run of blocks. Not owned.
struct MatrixView {
  TensorType type = TensorType::kF32;
  int64_t n_out = 0;
  int64_t n_in = 0;
  const std::byte* data = nullptr;
};

class PackedFile;

/// Immutable once made; apply() may be called by the owner of the Context only.
class Linear {
 public:
  virtual ~Linear() = default;
  /// x [n_rows, n_in] → y [n_rows, n_out], both dense float32.
  virtual void apply(Context& context, const float* x, int64_t n_rows, float* y) const = 0;
  /// The same on activations of 8 bits, with the same weights: for a kernel set with
  /// has_int8_activations(). Weights that are multiplied in floating point have no others: apply().
  virtual void apply_int8(Context& context, const float* x, int64_t n_rows, float* y) const {
    apply(context, x, n_rows, y);
  }
  [[nodiscard]] virtual int64_t n_in() const = 0;
  [[nodiscard]] virtual int64_t n_out() const = 0;
  [[nodiscard]] virtual size_t bytes() const = 0;
  /// The implementation for /version, e.g. "avx512_vnni Q4_1" or "onednn bf16
  /// brgemm:avx512_core_bf16".
  [[nodiscard]] virtual std::string describe() const = 0;
  /// That of apply_int8(), e.g. "avx512_vnni Q4_1 on int8 activations".
  [[nodiscard]] virtual std::string describe_int8() const { return describe(); }
};

/// Packs `stacked` matrices of equal n_in (their outputs one after another: fused q+k+v, gate+up;
/// the types may differ) for `kernel_class`. The sources are not needed afterwards. With a `file`
/// strips and panels come from there if it has them, and it is told of those that it hasn't; other
/// layouts (rows as they are, and the float32 of the yardstick) are not worth keeping.
[[nodiscard]] Result<std::unique_ptr<Linear>> make_linear(Context& context,
                                                          KernelClass kernel_class,
                                                          std::span<const MatrixView> stacked,
                                                          PackedFile* file = nullptr);

/// Whether what make_linear makes of `stacked` for the decode class serves the prefill class too,
/// whose activations are `prefill`: by apply() if they are kInt16 (make_linear makes the same for
/// both then), by apply_int8() if they are kInt8.
[[nodiscard]] bool classes_agree(KernelSet kernels, std::span<const MatrixView> stacked,
                                 ActivationType prefill = ActivationType::kInt16);

/// Values of `n` (a multiple of the type's block) elements as float32; exact for every type.
void dequantize(TensorType type, const std::byte* data, int64_t n, float* out);

}  // namespace baton::linalg
