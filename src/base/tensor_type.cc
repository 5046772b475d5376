#include "base/tensor_type.h"

#include <array>

namespace baton {
namespace {

constexpr std::array<TensorTypeInfo, 11> kTypes = {{
    {TensorType::kF32, "F32", 0, 1, 4},
    {TensorType::kF16, "F16", 1, 1, 2},
    {TensorType::kBF16, "BF16", 30, 1, 2},
    {TensorType::kQ4_0, "Q4_0", 2, 32, 18},
    {TensorType::kQ4_1, "Q4_1", 3, 32, 20},
    {TensorType::kQ5_0, "Q5_0", 6, 32, 22},
    {TensorType::kQ5_1, "Q5_1", 7, 32, 24},
    {TensorType::kQ8_0, "Q8_0", 8, 32, 34},
    {TensorType::kQ4_K, "Q4_K", 12, 256, 144},
    {TensorType::kQ5_K, "Q5_K", 13, 256, 176},
    {TensorType::kQ6_K, "Q6_K", 14, 256, 210},
}};

}  // namespace

const TensorTypeInfo& info(TensorType type) { return kTypes[static_cast<size_t>(type)]; }

std::optional<TensorType> tensor_type_from_ggml(uint32_t ggml_id) {
  for (const auto& entry : kTypes) {
    if (entry.ggml_id == ggml_id) return entry.type;
  }
  return std::nullopt;
}

}  // namespace baton
