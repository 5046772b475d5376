#include "linalg/linear.h"

#include "linalg/reference_linear.h"

namespace baton::linalg {
namespace {

Status check(std::span<const MatrixView> stacked) {
  if (stacked.empty()) return fail(ErrorCode::kInvalidArgument, "a linear layer needs a matrix");
  for (const MatrixView& matrix : stacked) {
    const TensorTypeInfo& geometry = info(matrix.type);
    if (matrix.data == nullptr || matrix.n_out <= 0 || matrix.n_in <= 0) {
      return fail(ErrorCode::kInvalidArgument, "a linear layer of {} x {} values: empty",
                  matrix.n_out, matrix.n_in);
    }
    if (matrix.n_in % geometry.block_values != 0) {
      return fail(ErrorCode::kInvalidArgument,
                  "rows of {} values: not a multiple of the {} of a {} block", matrix.n_in,
                  geometry.block_values, geometry.name);
    }
    if (matrix.n_in != stacked.front().n_in) {
      return fail(ErrorCode::kInvalidArgument, "matrices with {} and {} inputs cannot be stacked",
                  stacked.front().n_in, matrix.n_in);
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Linear>> make_linear(Context& context, KernelClass kernel_class,
                                            std::span<const MatrixView> stacked) {
  if (auto ok = check(stacked); !ok) return tl::unexpected(ok.error());
  (void)kernel_class;
  return make_reference_linear(context, stacked);
}

}  // namespace baton::linalg
