// The element types of weights, with the block geometry of ggml's formats. Shared by format (which
// reads them) and linalg (which computes on them).
//
// Source of the layouts: ggml-common.h (block_q4_0 … block_q6_K) and gguf.h of llama.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace baton {

enum class TensorType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

/// Geometry of a type: a row of n values takes n / block_values * block_bytes bytes.
struct TensorTypeInfo {
  TensorType type;
  std::string_view name;  ///< ggml's name, e.g. "Q4_K"
  uint32_t ggml_id;       ///< enum ggml_type
  int block_values;
  int block_bytes;
};

[[nodiscard]] const TensorTypeInfo& info(TensorType type);
[[nodiscard]] std::optional<TensorType> tensor_type_from_ggml(uint32_t ggml_id);

/// Bytes of one row of `n_values` (a multiple of block_values).
[[nodiscard]] inline size_t row_bytes(TensorType type, int64_t n_values) {
  return static_cast<size_t>(n_values / info(type).block_values) *
         static_cast<size_t>(info(type).block_bytes);
}

}  // namespace baton
