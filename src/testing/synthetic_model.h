// Models of random weights in the shapes of published ones, for measurements on sizes that can't be
// kept in a repository or fetched. What they say is noise; what they cost is what a real model
// costs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/tensor_type.h"
#include "testing/gguf_writer.h"

namespace baton::testing {

/// Sizes of a model of the architecture `llama`.
struct SyntheticShape {
  std::string_view name;
  int hidden = 0;  ///< a multiple of 256, as `ffn`: K types have blocks of so many values
  int n_layers = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int ffn = 0;
  int n_vocab = 0;  ///< at least kLeastVocab
  int context_length = 0;
  float rope_base = 0.0F;
  bool tied_head = false;  ///< the output matrix is the embedding
};

/// Special tokens and one for each byte.
inline constexpr int kLeastVocab = 3 + 256;

/// "1.5b" (Qwen2.5-1.5B's sizes), "7b" (Mistral-7B's) and "tiny" (for tests).
[[nodiscard]] std::span<const SyntheticShape> synthetic_shapes();
/// Null if there is none by this name.
[[nodiscard]] const SyntheticShape* find_synthetic_shape(std::string_view name);

/// A whole model, its tensors made while they are written: a few MB of memory whatever its size.
///
/// Every matrix is of `type` (Q4_0, Q4_K or Q8_0; others are a bug), with random codes and block
/// scales of both signs, so that a value's mean is 0 and its standard deviation 1/√n_in (of the
/// output matrix 2/√n_in): activations stay about 1, logits about 2. Norms are 1. The bytes are a
/// function of the arguments. The vocabulary spells bytes and, with all other ids, made-up words
/// that encode to the ids they came from; other text takes a token a byte. There is a chat
/// template.
[[nodiscard]] GgufWriter synthetic_model(const SyntheticShape& shape, TensorType type,
                                         uint64_t seed);

}  // namespace baton::testing
