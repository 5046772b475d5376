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

/// Told how a forward pass gets on, so that KV can be sent while later layers are computed. A batch
/// with slices of both classes runs through all layers twice, in the prefill class first. Called on
/// the thread of forward(), which goes on when the call returns.
class LayerHook {
 public:
  virtual ~LayerHook() = default;
  virtual void on_layer_begin(int layer, linalg::KernelClass kernel_class) = 0;
  /// K and V of all slices of this class lie in the KV memory of this layer; nothing else of the
  /// layer that needs them has been computed.
  virtual void on_kv_stored(int layer, linalg::KernelClass kernel_class) = 0;
  /// False: nobody needs this pass any more; forward() returns at once, without logits and without
  /// the KV of later layers.
  [[nodiscard]] virtual bool on_layer_end(int layer, linalg::KernelClass kernel_class) = 0;
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
  virtual void forward(std::span<const SeqSlice> slices, float* logits,
                       LayerHook* hook = nullptr) = 0;
};

}  // namespace baton::model
