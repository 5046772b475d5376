#include "linalg/block_codec.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "linalg/half.h"
#include "linalg/linear.h"

namespace baton::linalg {
namespace {

uint8_t byte_at(const std::byte* p, int i) { return std::to_integer<uint8_t>(p[i]); }

uint16_t bits16_at(const std::byte* p) {
  uint16_t h;
  std::memcpy(&h, p, sizeof h);
  return h;
}

void read_scale(const std::byte* p, BlockCodes& out) {
  out.scale_half = bits16_at(p);
  out.scales[0] = half_to_float(out.scale_half);
}

void read_min(const std::byte* p, BlockCodes& out) {
  out.min_half = bits16_at(p);
  out.mins[0] = half_to_float(out.min_half);
}

// 32 codes from 16 bytes: low nibbles first, then high ones (Q4_0 … Q5_1).
void unpack_nibbles(const std::byte* qs, int bias, int8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    const int q = byte_at(qs, j);
    codes[j] = static_cast<int8_t>((q & 15) - bias);
    codes[j + 16] = static_cast<int8_t>((q >> 4) - bias);
  }
}

// As above with a fifth bit for each code in the 32 bits at qh.
void unpack_five_bits(const std::byte* qh, const std::byte* qs, int bias, int8_t* codes) {
  static_assert(std::endian::native == std::endian::little);
  uint8_t upper[32];
  for (int i = 0; i < 4; ++i) {
    // Bit k of the byte to the lowest bit or above of byte k, from there to its top, from there
    // to 16.
    uint64_t spread = byte_at(qh, i) * 0x0101010101010101U & 0x8040201008040201U;
    spread = ((spread + 0x7F7F7F7F7F7F7F7FU) & 0x8080808080808080U) >> 3;
    std::memcpy(upper + 8 * i, &spread, sizeof spread);
  }
  for (int j = 0; j < 16; ++j) {
    const int q = byte_at(qs, j);
    codes[j] = static_cast<int8_t>(((q & 15) | upper[j]) - bias);
    codes[j + 16] = static_cast<int8_t>((q >> 4 | upper[j + 16]) - bias);
  }
}

// Q4_K and Q5_K begin alike: d, dmin, then eight 6-bit scales and eight 6-bit minima in 12 bytes.
// The first four of each are the low 6 bits of a byte; of the last four, the low 4 bits lie in
// bytes 8-11 and the high 2 bits on top of the first eight bytes.
void unpack_k_scales(const std::byte* block, BlockCodes& out) {
  read_scale(block, out);
  read_min(block + 2, out);
  const float d = out.scales[0];
  const float dmin = out.mins[0];
  const std::byte* s = block + 4;
  for (int j = 0; j < 8; ++j) {
    int scale;
    int min;
    if (j < 4) {
      scale = byte_at(s, j) & 63;
      min = byte_at(s, j + 4) & 63;
    } else {
      scale = (byte_at(s, j + 4) & 15) | byte_at(s, j - 4) >> 6 << 4;
      min = byte_at(s, j + 4) >> 4 | byte_at(s, j) >> 6 << 4;
    }
    const auto at = static_cast<size_t>(j);
    out.sub_scales[at] = static_cast<int8_t>(scale);
    out.sub_mins[at] = static_cast<int8_t>(min);
    out.scales[at] = d * static_cast<float>(scale);
    out.mins[at] = -(dmin * static_cast<float>(min));
  }
}

// Groups 2c and 2c+1 are the low and high nibbles of 32 bytes; Q5_K's fifth bit of group g is bit g
// of the 32 bytes at qh.
void unpack_k_codes(const std::byte* qh, const std::byte* qs, int8_t* codes) {
  for (int chunk = 0; chunk < 4; ++chunk) {
    for (int l = 0; l < 32; ++l) {
      const int q = byte_at(qs, chunk * 32 + l);
      const int high = qh == nullptr ? 0 : byte_at(qh, l) >> (2 * chunk);
      codes[chunk * 64 + l] = static_cast<int8_t>((q & 15) | (high & 1) << 4);
      codes[chunk * 64 + 32 + l] = static_cast<int8_t>(q >> 4 | (high >> 1 & 1) << 4);
    }
  }
}

void unpack_q6_k(const std::byte* block, BlockCodes& out) {
  const std::byte* scales = block + 192;
  read_scale(block + 208, out);
  const float d = out.scales[0];
  std::memcpy(out.sub_scales.data(), scales, 16);
  for (size_t g = 0; g < 16; ++g) out.scales[g] = d * static_cast<float>(out.sub_scales[g]);
  for (int half = 0; half < 2; ++half) {
    const std::byte* ql = block + half * 64;
    const std::byte* qh = block + 128 + half * 32;
    int8_t* codes = out.codes.data() + half * 128;
    for (int l = 0; l < 32; ++l) {
      const int high = byte_at(qh, l);
      const int a = byte_at(ql, l);
      const int b = byte_at(ql, l + 32);
      codes[l] = static_cast<int8_t>(((a & 15) | (high & 3) << 4) - 32);
      codes[l + 32] = static_cast<int8_t>(((b & 15) | (high >> 2 & 3) << 4) - 32);
      codes[l + 64] = static_cast<int8_t>((a >> 4 | (high >> 4 & 3) << 4) - 32);
      codes[l + 96] = static_cast<int8_t>((b >> 4 | (high >> 6 & 3) << 4) - 32);
    }
  }
}

// Groups of a size that the compiler knows: it can use vectors.
template <int kGroup>
void dequantize_groups(TensorType type, const std::byte* data, int64_t n, float* out) {
  const TensorTypeInfo& geometry = info(type);
  const bool has_min = code_info(type).has_min;
  BlockCodes block;
  for (int64_t begin = 0; begin < n; begin += geometry.block_values) {
    unpack_block(type, data, block);
    data += geometry.block_bytes;
    for (int first = 0; first < geometry.block_values; first += kGroup, out += kGroup) {
      const auto g = static_cast<size_t>(first / kGroup);
      const float scale = block.scales[g];
      const int8_t* codes = block.codes.data() + first;
      for (int i = 0; i < kGroup; ++i) out[i] = scale * static_cast<float>(codes[i]);
      if (!has_min) continue;
      const float min = block.mins[g];
      for (int i = 0; i < kGroup; ++i) out[i] += min;
    }
  }
}

void dequantize_blocks(TensorType type, const std::byte* data, int64_t n, float* out) {
  if (code_info(type).group_values == 16) {
    dequantize_groups<16>(type, data, n, out);
  } else {
    dequantize_groups<32>(type, data, n, out);
  }
}

}  // namespace

CodeInfo code_info(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return {32, 4, false};
    case TensorType::kQ4_1:
      return {32, 4, true};
    case TensorType::kQ5_0:
      return {32, 5, false};
    case TensorType::kQ5_1:
      return {32, 5, true};
    case TensorType::kQ8_0:
      return {32, 8, false};
    case TensorType::kQ4_K:
      return {32, 4, true};
    case TensorType::kQ5_K:
      return {32, 5, true};
    case TensorType::kQ6_K:
      return {16, 6, false};
    default:
      return {0, 0, false};
  }
}

void unpack_block(TensorType type, const std::byte* block, BlockCodes& out) {
  int8_t* codes = out.codes.data();
  switch (type) {
    case TensorType::kQ4_0:
      read_scale(block, out);
      return unpack_nibbles(block + 2, 8, codes);
    case TensorType::kQ4_1:
      read_scale(block, out);
      read_min(block + 2, out);
      return unpack_nibbles(block + 4, 0, codes);
    case TensorType::kQ5_0:
      read_scale(block, out);
      return unpack_five_bits(block + 2, block + 6, 16, codes);
    case TensorType::kQ5_1:
      read_scale(block, out);
      read_min(block + 2, out);
      return unpack_five_bits(block + 4, block + 8, 0, codes);
    case TensorType::kQ8_0:
      read_scale(block, out);
      std::memcpy(codes, block + 2, 32);
      return;
    case TensorType::kQ4_K:
      unpack_k_scales(block, out);
      return unpack_k_codes(nullptr, block + 16, codes);
    case TensorType::kQ5_K:
      unpack_k_scales(block, out);
      return unpack_k_codes(block + 16, block + 48, codes);
    case TensorType::kQ6_K:
      return unpack_q6_k(block, out);
    default:
      BATON_CHECK(false, "{} has no blocks", info(type).name);
  }
}

void dequantize(TensorType type, const std::byte* data, int64_t n, float* out) {
  BATON_CHECK(n >= 0 && n % info(type).block_values == 0, "{} of {}", n, info(type).name);
  switch (type) {
    case TensorType::kF32:
      if (n > 0) std::memcpy(out, data, static_cast<size_t>(n) * sizeof(float));
      return;
    case TensorType::kF16:
      for (int64_t i = 0; i < n; ++i) out[i] = half_to_float(bits16_at(data + 2 * i));
      return;
    case TensorType::kBF16:
      for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_float(bits16_at(data + 2 * i));
      return;
    default:
      dequantize_blocks(type, data, n, out);
  }
}

}  // namespace baton::linalg
