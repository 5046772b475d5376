// What a token costs by arithmetic alone: floating-point operations and bytes that must be moved,
// from a model's numbers and the sizes of its packed weights. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/transformer.h"

namespace baton::bench {

/// Of one pass or of several.
struct Cost {
  double flops = 0;  ///< a multiplication and an addition are two
  double bytes = 0;  ///< weights, and KV read and written, each as often as a pass needs it

  Cost& operator+=(const Cost& other) {
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
  [[nodiscard]] Cost operator/(double n) const { return {flops / n, bytes / n}; }
};

/// Bytes of packed weights by what reads them; what both classes share stands in both.
struct WeightBytes {
  double prefill_qkv = 0;  ///< all layers
  double prefill_rest = 0;
  double decode_layers = 0;
  double head = 0;
};
[[nodiscard]] WeightBytes weight_bytes(std::span<const model::GemmInfo> gemms);

/// A model as far as costs go. Immutable.
class CostModel {
 public:
  /// `spec` is copied. `kv_value_bytes`: 2 (bf16) or 4 (float32).
  CostModel(model::ModelSpec spec, const WeightBytes& weights, int kv_value_bytes);

  /// One decode step of `n_streams` sequences, each with `context` tokens before the new one:
  /// all decode weights once, each stream's visible KV once.
  [[nodiscard]] Cost decode_step(int n_streams, int context) const;
  /// A prompt's positions [begin, end) in the prefill class, no logits: prefill weights once, the
  /// KV that it sees once, its own KV written. Of the last layer only K and V.
  [[nodiscard]] Cost prefill_chunk(int begin, int end) const;
  /// The last positions [begin, end) of a prompt in the decode class, with the logits of one.
  [[nodiscard]] Cost tail(int begin, int end) const;

 private:
  /// Sum over the positions [begin, end) of how many positions each sees.
  [[nodiscard]] static double visible(int begin, int end, int window);
  /// Attention's and KV's part of positions [begin, end) of one sequence; `n_last`: how many of
  /// them attend in the last layer.
  [[nodiscard]] Cost sequence(int begin, int end, int n_last) const;
  [[nodiscard]] double layer_values() const;  ///< weights of one layer's matrices, qkv left out
  [[nodiscard]] double qkv_values() const;

  model::ModelSpec spec_;
  WeightBytes weights_;
  int kv_value_bytes_;
};

}  // namespace baton::bench
