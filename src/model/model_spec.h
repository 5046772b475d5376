// What a model is, in numbers: everything the forward pass depends on, from whichever file format.
//
// The forward pass (transformer.cc) reads this and never an architecture's name; a new architecture
// that is a combination of these numbers needs a row in architectures.cc and nothing else.
#pragma once

#include <string>
#include <vector>

#include "linalg/ops.h"

namespace baton::model {

/// A rotary embedding: the angle of pair i at position p is p * f_i,
/// f_i = base^(-2i / n_rot) / linear_factor / divisors[i].
struct RopeSpec {
  linalg::RopeStyle style = linalg::RopeStyle::kHalf;
  int n_rot = 0;  ///< rotated values of a head: its first ones; even
  double base = 10000.0;
  double linear_factor = 1.0;   ///< "linear" scaling: position / factor
  std::vector<float> divisors;  ///< [n_rot / 2] or empty: GGUF's rope_freqs.weight (llama3 scaling)
};
/// f_i of a spec: [n_rot / 2].
[[nodiscard]] std::vector<double> inverse_frequencies(const RopeSpec& rope);

struct LayerSpec {
  int window = 0;  ///< position i sees j with i - window < j <= i; 0 = all j <= i
  int rope = 0;    ///< index into ModelSpec::ropes
};

/// Every number has been checked to be in a sane range and to fit the tensors.
struct ModelSpec {
  std::string architecture;  ///< the file's word for it; for messages only
  std::string name;          ///< general.name; may be empty
  int n_vocab = 0;
  int context_length = 0;  ///< tokens
  int hidden = 0;
  int n_heads = 0;
  int n_kv_heads = 0;  ///< divides n_heads
  int head_dim = 0;    ///< need not be hidden / n_heads
  int ffn = 0;         ///< width of gate and of up
  float norm_eps = 0.0F;
  float embedding_scale = 1.0F;  ///< multiplies the embedding of a token
  float attention_scale = 0.0F;  ///< multiplies q·k
  linalg::GatedActivation activation = linalg::GatedActivation::kSilu;
  bool qk_norms = false;    ///< RMSNorm over each head of q and k, before RoPE
  bool post_norms = false;  ///< RMSNorm on what attention and MLP give, before it is added
  bool tied_head = false;   ///< the output matrix is the embedding
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;

  [[nodiscard]] int n_layers() const { return static_cast<int>(layers.size()); }
  /// Width of the fused q|k|v of one token.
  [[nodiscard]] int64_t qkv_width() const { return int64_t{head_dim} * (n_heads + 2 * n_kv_heads); }
  [[nodiscard]] int64_t q_width() const { return int64_t{head_dim} * n_heads; }
  [[nodiscard]] int64_t kv_width() const { return int64_t{head_dim} * n_kv_heads; }
};

}  // namespace baton::model
