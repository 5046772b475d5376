// The block formats of GGUF files, taken apart: integer codes, scales and minima.
//
// Every quantised type is value = scale[g] * code (+ min[g]), with one scale (and min) for each
// group g of 16 or 32 values. dequantize() and every repacking go through this one reader, so there
// is one place that knows the bit layouts.
//
// Source of the layouts: ggml-common.h and ggml-quants.c (dequantize_row_*) of llama.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/tensor_type.h"

namespace baton::linalg {

inline constexpr int kMaxBlockValues = 256;

/// One block of a quantised type, unpacked. Members that a type does not have keep what they held.
struct BlockCodes {
  std::array<int8_t, kMaxBlockValues> codes;
  std::array<float, kMaxBlockValues / 16> scales;  ///< for each group
  std::array<float, kMaxBlockValues / 16> mins;    ///< for each group; only where has_min
  uint16_t scale_half;  ///< float16 bits: the scale, or what sub_scales of a K type multiply
  uint16_t min_half;    ///< float16 bits: the min, or what sub_mins of a K type multiply, negated
  std::array<int8_t, kMaxBlockValues / 16> sub_scales;  ///< K types: scales[g] = scale_half * this
  std::array<int8_t, kMaxBlockValues / 32> sub_mins;  ///< Q4_K, Q5_K: mins[g] = -(min_half * this)
};

/// What BlockCodes of a type hold.
struct CodeInfo {
  int group_values;  ///< values that share a scale: 16 or 32; 0 = not a quantised type
  int bits;          ///< of a code
  bool has_min;      ///< codes are 0 … 2^bits - 1 and mins count; else they are signed
};

[[nodiscard]] CodeInfo code_info(TensorType type);

/// Reads one block (block_bytes of info(type)) of a quantised type; other types are a bug.
void unpack_block(TensorType type, const std::byte* block, BlockCodes& out);

}  // namespace baton::linalg
