#include "linalg/tile_pack.h"

#include <algorithm>
#include <cstring>

#include "linalg/block_codec.h"
#include "linalg/tiles.h"

namespace baton::linalg {
namespace {

// The codes of output o, one tile: 32 codes, already unsigned. Four codes, those of one register,
// are handled as one 32-bit word.
void pack_codes(int bits, const uint8_t* codes, int o, uint8_t* tile) {
  uint32_t words[8];
  std::memcpy(words, codes, sizeof words);
  const auto put = [&](int line, uint32_t word) {
    std::memcpy(tile + 64 * line + 4 * o, &word, sizeof word);
  };
  if (bits == 8) {
    for (int j = 0; j < 8; ++j) put(j, words[j]);
    return;
  }
  constexpr uint32_t kNibbles = 0x0F0F0F0F;
  for (int j = 0; j < 4; ++j) put(j, (words[j] & kNibbles) | (words[j + 4] & kNibbles) << 4);
  const int n_planes = bits - 4;  // of 64 bytes, each with the upper bits of 8 / n_planes registers
  for (int plane = 0; plane < n_planes; ++plane) {
    const int registers = 8 / n_planes;
    uint32_t upper = 0;
    for (int j = 0; j < registers; ++j) {
      upper |= (words[plane * registers + j] >> 4 & kNibbles) << (j * n_planes);
    }
    put(4 + plane, upper);
  }
}

void put_half(uint16_t half, int o, uint8_t* array) {
  std::memcpy(array + 2 * o, &half, sizeof half);
}

// The scales of output o for the tiles of one block of the file, the first of which is tile t.
void pack_scales(TileFormat format, const BlockCodes& block, int64_t t, int o, uint8_t* scales) {
  const int run_bytes = scale_run_bytes(format.scales);
  switch (format.scales) {
    case ScaleKind::kHalf:
      return put_half(block.scale_half, o, scales + t * run_bytes);
    case ScaleKind::kHalfMin:
      put_half(block.scale_half, o, scales + t * run_bytes);
      return put_half(block.min_half, o, scales + t * run_bytes + 32);
    case ScaleKind::kSuper: {
      uint8_t* run = scales + t / kSuperTiles * run_bytes;
      put_half(block.scale_half, o, run);
      put_half(block.min_half, o, run + 32);
      for (size_t i = 0; i < kSuperTiles; ++i) {
        run[64 + 32 * i + static_cast<size_t>(o)] = static_cast<uint8_t>(block.sub_scales[i]);
        run[80 + 32 * i + static_cast<size_t>(o)] = static_cast<uint8_t>(block.sub_mins[i]);
      }
      return;
    }
    case ScaleKind::kSuper16: {
      uint8_t* run = scales + t / kSuperTiles * run_bytes;
      put_half(block.scale_half, o, run);
      for (size_t g = 0; g < 2 * kSuperTiles; ++g) {
        run[32 + 16 * g + static_cast<size_t>(o)] = static_cast<uint8_t>(block.sub_scales[g]);
      }
      return;
    }
  }
}

void pack_quantized_output(const MatrixView& matrix, int64_t output, int o, uint8_t* strip) {
  const TileFormat format = tile_format(matrix.type);
  const TensorTypeInfo& geometry = info(matrix.type);
  const std::byte* row =
      matrix.data + static_cast<size_t>(output) * row_bytes(matrix.type, matrix.n_in);
  uint8_t* tile = strip + strip_scale_bytes(format, matrix.n_in / kTileInputs);
  BlockCodes block;
  uint8_t codes[kMaxBlockValues];
  for (int64_t i = 0; i < matrix.n_in; i += geometry.block_values) {
    unpack_block(matrix.type, row, block);
    row += geometry.block_bytes;
    pack_scales(format, block, i / kTileInputs, o, strip);
    for (int c = 0; c < geometry.block_values; ++c) {
      codes[c] = static_cast<uint8_t>(block.codes[static_cast<size_t>(c)] + format.bias);
    }
    for (int c = 0; c < geometry.block_values; c += kTileInputs) {
      pack_codes(format.bits, codes + c, o, tile);
      tile += tile_code_bytes(format);
    }
  }
}

void pack_float_output(const MatrixView& matrix, int64_t output, int o, uint8_t* strip) {
  const auto size = static_cast<size_t>(info(matrix.type).block_bytes);
  const std::byte* row =
      matrix.data + static_cast<size_t>(output) * row_bytes(matrix.type, matrix.n_in);
  for (size_t i = 0; i < static_cast<size_t>(matrix.n_in); ++i) {
    std::memcpy(strip + (i * kStripOutputs + static_cast<size_t>(o)) * size, row + i * size, size);
  }
}

}  // namespace

int64_t strip_bytes(TensorType type, int64_t n_in) {
  const TileFormat format = tile_format(type);
  if (format.bits == 0) return n_in * kStripOutputs * info(type).block_bytes;
  const int64_t n_tiles = n_in / kTileInputs;
  return strip_scale_bytes(format, n_tiles) + n_tiles * tile_code_bytes(format);
}

void pack_strip(const MatrixView& matrix, int64_t first, uint8_t* strip) {
  const int64_t n = std::min<int64_t>(kStripOutputs, matrix.n_out - first);
  // Zero scales make the outputs that are not there zero; their codes must only be defined.
  if (n < kStripOutputs) {
    std::memset(strip, 0, static_cast<size_t>(strip_bytes(matrix.type, matrix.n_in)));
  }
  const bool quantized = tile_format(matrix.type).bits != 0;
  for (int o = 0; o < n; ++o) {
    if (quantized) {
      pack_quantized_output(matrix, first + o, o, strip);
    } else {
      pack_float_output(matrix, first + o, o, strip);
    }
  }
}

}  // namespace baton::linalg
