#include "linalg/tile_pack.h"

#include <algorithm>
#include <cstring>

#include "linalg/block_codec.h"
#include "linalg/tiles.h"

namespace baton::linalg {
namespace {

// The codes of output o, one tile: 32 codes, already unsigned.
void pack_codes(int bits, const uint8_t* codes, int o, uint8_t* tile) {
  if (bits == 8) {
    for (int j = 0; j < 8; ++j) std::memcpy(tile + 64 * j + 4 * o, codes + 4 * j, 4);
    return;
  }
  for (int j = 0; j < 4; ++j) {
    uint8_t* to = tile + 64 * j + 4 * o;
    for (int k = 0; k < 4; ++k) {
      to[k] = static_cast<uint8_t>((codes[4 * j + k] & 15) | (codes[16 + 4 * j + k] & 15) << 4);
    }
  }
  if (bits == 4) return;
  const int n_planes = bits - 4;       // 64 bytes each
  const int registers = 8 / n_planes;  // whose upper bits share a plane
  for (int plane = 0; plane < n_planes; ++plane) {
    uint8_t* to = tile + 256 + 64 * plane + 4 * o;
    for (int k = 0; k < 4; ++k) {
      int upper = 0;
      for (int j = 0; j < registers; ++j) {
        upper |= codes[4 * (plane * registers + j) + k] >> 4 << (j * n_planes);
      }
      to[k] = static_cast<uint8_t>(upper);
    }
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
