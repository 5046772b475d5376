#include "linalg/linear.h"

#include <algorithm>

#include "base/check.h"
#include "linalg/panel_linear.h"
#include "linalg/portable_linear.h"
#include "linalg/reference_linear.h"
#if defined(__x86_64__)
#include "linalg/avx2_kernels.h"
#include "linalg/avx512_kernels.h"
#include "linalg/strip_linear.h"
#endif

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

#if defined(__x86_64__)
constexpr StripKernels kAvx2Strips = {"avx2", 1, avx2_quantize_row, nullptr, avx2_strip_kernel};
constexpr StripKernels kAvx512Strips = {"avx512_vnni", kAvx512MinWordRows, avx512_quantize_row,
                                        avx512_quantize_blocks, avx512_strip_kernel};
#endif

Result<std::unique_ptr<Linear>> make_decode_linear(Context& context,
                                                   std::span<const MatrixView> stacked,
                                                   PackedFile* file) {
  switch (context.kernels) {
    case KernelSet::kReference:
      return make_reference_linear(context, stacked);
    case KernelSet::kPortable:
      return make_portable_linear(context, stacked);
    case KernelSet::kAvx2:
    case KernelSet::kAvx512:
    case KernelSet::kAmx:
      break;
  }
#if defined(__x86_64__)
  const bool avx2 = context.kernels == KernelSet::kAvx2;
  return make_strip_linear(context, avx2 ? kAvx2Strips : kAvx512Strips, stacked, file);
#else
  BATON_CHECK(false, "kernel set {} chosen for a CPU without it", name(context.kernels));
#endif
}

}  // namespace

bool classes_agree(KernelSet kernels, std::span<const MatrixView> stacked, ActivationType prefill) {
  if (kernels == KernelSet::kReference) return true;
  const bool int8 = prefill == ActivationType::kInt8 && has_int8_activations(kernels);
  return (kernels == KernelSet::kAvx512 || int8) &&
         std::none_of(stacked.begin(), stacked.end(),
                      [](const MatrixView& matrix) { return info(matrix.type).block_values == 1; });
}

Result<std::unique_ptr<Linear>> make_linear(Context& context, KernelClass kernel_class,
                                            std::span<const MatrixView> stacked, PackedFile* file) {
  if (auto ok = check(stacked); !ok) return tl::unexpected(ok.error());
  if (kernel_class == KernelClass::kDecode || classes_agree(context.kernels, stacked)) {
    return make_decode_linear(context, stacked, file);
  }
  return make_panel_linear(context, stacked, file);
}

}  // namespace baton::linalg
