// The inner loops behind attention.h, once for each instruction set. Internal to src/linalg.
//
// KV is read in tiles of kTileTokens positions that start at absolute multiples of it. A tile is
// widened to float32 (keys transposed), multiplied with all query rows of a unit, and folded into
// each row's running (maximum, sum, weighted values): an online softmax (Milakov and Gimelshein,
// 2018; FlashAttention) whose order of rescaling depends on absolute positions only. What a row
// can't see enters as an exact 0, so rows that share a unit don't change each other's bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"

namespace baton::linalg {

inline constexpr int kTileTokens = 64;
inline constexpr int kKvBlockTokens = 16;
inline constexpr int kSumLanes = 16;

/// head_dim rounded up to whole vectors: the distance between rows in scratch memory.
[[nodiscard, gnu::always_inline]] constexpr inline int attention_width(int head_dim) {
  return (head_dim + 15) / 16 * 16;
}

/// Query positions [first_position, first_position + n_positions) of one sequence, seen by the
/// `group` query heads that share one kv head. Row r = i * group + g is position i, head g.
struct AttentionUnit {
  const std::byte* keys = nullptr;    ///< this kv head's keys of block 0: [16][head_dim]
  const std::byte* values = nullptr;  ///< likewise its values
  size_t block_stride_bytes = 0;
  bool bf16 = true;                 ///< else float32
  const BlockId* blocks = nullptr;  ///< the sequence's block table
  int head_dim = 0;
  int group = 1;
  int first_position = 0;
  int n_positions = 0;
  int window = 0;
  float scale = 1.0F;
  const float* q = nullptr;  ///< position i, head g at q + i * q_stride + g * head_dim
  int64_t q_stride = 0;
  float* out = nullptr;  ///< likewise
  int64_t out_stride = 0;

  // Always inlined: no copy compiled for one instruction set may serve another's caller.
  [[nodiscard, gnu::always_inline]] int n_rows() const { return n_positions * group; }
  [[nodiscard, gnu::always_inline]] int end_position() const {
    return first_position + n_positions;
  }
  /// First position that any row sees.
  [[nodiscard, gnu::always_inline]] int begin_visible() const {
    return window > 0 && first_position >= window ? first_position - window + 1 : 0;
  }
};

/// The running softmax of a unit's rows over some range of positions.
struct AttentionPart {
  float* weighted = nullptr;  ///< [n_rows][width]: Σ e^(s - max) v
  float* max = nullptr;       ///< [n_rows]
  float* sum = nullptr;       ///< [n_rows][kSumLanes]: Σ e^(s - max), summed over lanes at the end

  [[nodiscard]] static constexpr size_t floats(int n_rows, int width) {
    return static_cast<size_t>(n_rows) * static_cast<size_t>(width + 1 + kSumLanes);
  }
};

/// Scratch memory of one thread.
struct AttentionScratch {
  float* q = nullptr;       ///< [n_rows][width], scaled
  float* scores = nullptr;  ///< [n_rows][kTileTokens]
  float* keys = nullptr;    ///< [width][kTileTokens]
  float* values = nullptr;  ///< [kTileTokens][width]

  [[nodiscard]] static constexpr size_t floats(int n_rows, int width) {
    return static_cast<size_t>(n_rows) * static_cast<size_t>(width + kTileTokens) +
           2 * static_cast<size_t>(width) * kTileTokens;
  }
};

/// Function pointers of one instruction set. Pure but for what they are given to write.
struct AttentionKernels {
  /// part = the softmax over the visible positions in tiles [begin_tile, end_tile).
  void (*attend)(const AttentionUnit& unit, int begin_tile, int end_tile,
                 const AttentionScratch& scratch, const AttentionPart& part);
  /// The same with sums over head_dim in lanes instead of a chain (other last bits): for few rows.
  void (*stream)(const AttentionUnit& unit, int begin_tile, int end_tile,
                 const AttentionScratch& scratch, const AttentionPart& part);
  /// Asks the memory for what `stream` reads first when it begins at `tile`.
  void (*fetch)(const AttentionUnit& unit, int tile);
  /// out = the parts (ascending positions, folded in that order), normalised.
  void (*finish)(const AttentionUnit& unit, const AttentionPart* parts, int n_parts);
};

extern const AttentionKernels kAttentionKernelsPortable;
#if defined(__x86_64__)
extern const AttentionKernels kAttentionKernelsAvx2;
extern const AttentionKernels kAttentionKernelsAvx512;  ///< F, BW, DQ, VL
#endif

}  // namespace baton::linalg
