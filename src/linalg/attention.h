// Attention over paged KV, for whole chunks of a prompt and for single tokens, and the write into
// KV.
//
// Rule of "Same bits": a query's result depends only on its position, its q and the KV of its
// sequence: the order of the sum over positions is fixed by absolute position, never by chunk,
// batch or threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/tensor_type.h"
#include "linalg/kernels.h"

namespace baton::linalg {

/// One layer of the KV memory: block b starts at data + b * block_stride_bytes and holds
/// [K|V][n_kv_heads][block_tokens][head_dim]. Not owned.
struct KvLayer {
  std::byte* data = nullptr;
  size_t block_stride_bytes = 0;
  TensorType type = TensorType::kBF16;  ///< kBF16 or kF32
  int n_kv_heads = 0;
  int head_dim = 0;
  int block_tokens = 16;
};

/// Rows [first_row, first_row + n_rows) of the batch are positions [begin, begin + n_rows) of one
/// sequence, whose KV lies in `blocks`.
struct SeqRows {
  std::span<const BlockId> blocks;
  int begin = 0;
  int n_rows = 0;
  int64_t first_row = 0;
};

/// A float32 matrix of rows whose used part is narrower than the distance between rows (a slice of
/// the fused q|k|v): row r starts at data + r * stride.
struct ConstRows {
  const float* data = nullptr;
  int64_t stride = 0;
};

struct AttentionShape {
  int n_heads = 0;     ///< query heads; head h reads kv head h / (n_heads / n_kv_heads)
  float scale = 0.0F;  ///< multiplies q·k
  int window = 0;      ///< position i sees j with i - window < j <= i; 0 = all j <= i
};

/// Writes k and v rows [n_kv_heads * head_dim] of each sequence to their positions (rounded to the
/// KV type).
void store_kv(Context& context, const KvLayer& layer, std::span<const SeqRows> seqs, ConstRows k,
              ConstRows v);

/// q rows [n_heads * head_dim] → out [n_rows, n_heads * head_dim] dense. KV of positions up to each
/// query's own must have been stored.
void attention(Context& context, KernelClass kernel_class, const KvLayer& layer,
               const AttentionShape& shape, std::span<const SeqRows> seqs, ConstRows q, float* out);

}  // namespace baton::linalg
