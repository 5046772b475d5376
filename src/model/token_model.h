// What the engine sees of a model: batches of token slices in, logits out. The transformer
// (transformer.h) implements it; tests of the engine use a stand-in.
#pragma once

#include <cstddef>
#include <span>

#include "base/ids.h"
#include "kv/layout.h"
#include "linalg/kernels.h"

namespace baton::model {

/// Tokens [begin, begin + tokens.size()) of one sequence. Their KV is written into `blocks`, which
/// already hold the KV of [0, begin).
struct SeqSlice {
  std::span<const BlockId> blocks;
  int begin = 0;
  std::span<const TokenId> tokens;
  linalg::KernelClass kernel_class = linalg::KernelClass::kDecode;
  /// Logits are computed for the last n_logits tokens of the slice (0 = none: a chunk in the
  /// middle).
  int n_logits = 0;
};

/// Owner: the engine thread (thread-compatible).
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  [[nodiscard]] virtual int n_vocab() const = 0;
  /// Longest sequence in tokens that the model was trained (or told) to handle.
  [[nodiscard]] virtual int context_length() const = 0;
  /// The layout of KV memory for `n_blocks` blocks of `type`.
  [[nodiscard]] virtual kv::KvLayout kv_layout(int n_blocks, TensorType type) const = 0;
  /// Where KV lies from now on: layout.total_bytes() at `memory`, owned by the caller.
  virtual void bind_kv(const kv::KvLayout& layout, std::byte* memory) = 0;
  /// One forward pass. `logits` [sum of n_logits, n_vocab], in the order of the slices; caller's
  /// memory. Logits and KV of a slice have the same bits whatever else is in the batch.
  virtual void forward(std::span<const SeqSlice> slices, float* logits) = 0;
};

}  // namespace baton::model
