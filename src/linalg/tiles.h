// How the AVX-512 decode kernels keep weights: strips of 16 outputs, tiles of 16 outputs x 32
// inputs.
//
// A strip holds 16 consecutive rows of a matrix, all n_in inputs: first the scales of all its
// tiles, then their codes, both in the order in which the kernel reads them. A 512-bit register
// holds 16 outputs x 4 consecutive inputs (a byte each), what one VPDPBUSD multiplies with 4
// activations.
//
// Codes are unsigned: code + bias. Register j of a tile (j < 8) has the codes of inputs 4j … 4j+3,
// byte 4o+k that of output o, input 4j+k. They are stored as
//   4 bits   64 bytes for each pair (j, j+4), j < 4: low nibble register j, high nibble register
//   j+4 5 bits   the same, then 64 bytes whose bit j is the fifth bit of register j 6 bits   the
//   same, then 2 x 64 bytes: bits 2j, 2j+1 of the first are bits 4, 5 of register j < 4,
//            of the second those of register 4+j
//   8 bits   64 bytes for each register
// Scales (o = output, all arrays of 16), as exact as in the file and nearly as small:
//   kHalf     for each tile: scale float16[o]
//   kHalfMin  for each tile: scale float16[o], min float16[o]
//   kSuper    for each 8 tiles: d float16[o], dmin float16[o], then for each of the 8 tiles
//             sub-scale uint8[o], sub-min uint8[o]          (scale = d * sub, min = -(dmin * sub))
//   kSuper16  for each 8 tiles: d float16[o], then for each tile sub-scale int8[2][o], one for each
//             16 inputs
// Float types have no tiles: a strip is [n_in][16] values.
//
// Bytes for 32 values, here (in the file): Q4_0 18 (18), Q4_1 20 (20), Q5_0 22 (22), Q5_1 24 (24),
// Q8_0 34 (34), Q4_K 18.5 (18), Q5_K 22.5 (22), Q6_K 26.25 (26.25).
#pragma once

#include <cstdint>

#include "base/tensor_type.h"

namespace baton::linalg {

inline constexpr int kStripOutputs = 16;
inline constexpr int kTileInputs = 32;
inline constexpr int kSuperTiles = 8;

enum class ScaleKind : uint8_t { kHalf, kHalfMin, kSuper, kSuper16 };

struct TileFormat {
  int bits;  ///< 4, 5, 6 or 8; 0 = a float type
  ScaleKind scales;
  int bias;  ///< what was added to the signed codes of the file
};

constexpr TileFormat tile_format(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return {4, ScaleKind::kHalf, 8};
    case TensorType::kQ4_1:
      return {4, ScaleKind::kHalfMin, 0};
    case TensorType::kQ5_0:
      return {5, ScaleKind::kHalf, 16};
    case TensorType::kQ5_1:
      return {5, ScaleKind::kHalfMin, 0};
    case TensorType::kQ8_0:
      return {8, ScaleKind::kHalf, 128};
    case TensorType::kQ4_K:
      return {4, ScaleKind::kSuper, 0};
    case TensorType::kQ5_K:
      return {5, ScaleKind::kSuper, 0};
    case TensorType::kQ6_K:
      return {6, ScaleKind::kSuper16, 32};
    default:
      return {0, ScaleKind::kHalf, 0};
  }
}

constexpr bool has_min(TileFormat format) {
  return format.scales == ScaleKind::kHalfMin || format.scales == ScaleKind::kSuper;
}

/// Bytes of the codes of one tile.
constexpr int tile_code_bytes(TileFormat format) { return 64 * format.bits; }

/// Bytes from one run of scales to the next: of a tile, or of kSuperTiles tiles.
constexpr int scale_run_bytes(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::kHalf:
      return 32;
    case ScaleKind::kHalfMin:
      return 64;
    case ScaleKind::kSuper:
      return 64 + kSuperTiles * 32;
    case ScaleKind::kSuper16:
      return 32 + kSuperTiles * 32;
  }
  return 0;
}

/// Bytes of a strip's scales, with what is needed to begin the codes on a cache line.
constexpr int64_t strip_scale_bytes(TileFormat format, int64_t n_tiles) {
  const bool super = format.scales == ScaleKind::kSuper || format.scales == ScaleKind::kSuper16;
  const int64_t n_runs = super ? n_tiles / kSuperTiles : n_tiles;
  return (n_runs * scale_run_bytes(format.scales) + 63) / 64 * 64;
}

}  // namespace baton::linalg
