// A model file understood: its ModelSpec and its tensors, checked against each other. Views, no
// weights copied.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/gguf.h"
#include "linalg/linear.h"
#include "model/model_spec.h"

namespace baton::model {

/// One layer's tensors. Matrices that are applied to the same input are listed together: stacked,
/// their outputs are q|k|v and gate|up. Norm weights are float32 copies (they are small).
struct LayerTensors {
  std::vector<linalg::MatrixView> qkv;      ///< together [qkv_width, hidden]
  linalg::MatrixView output;                ///< [hidden, q_width]
  std::vector<linalg::MatrixView> gate_up;  ///< together [2 * ffn, hidden]
  linalg::MatrixView down;                  ///< [hidden, ffn]
  std::vector<float> attention_norm;        ///< [hidden]
  std::vector<float> q_norm;                ///< [head_dim] with qk_norms, else empty
  std::vector<float> k_norm;                ///< [head_dim] with qk_norms, else empty
  std::vector<float> post_attention_norm;   ///< [hidden] with post_norms, else empty
  std::vector<float> ffn_norm;              ///< [hidden]
  std::vector<float> post_ffn_norm;         ///< [hidden] with post_norms, else empty
};

/// Immutable; keeps the file mapped that the views point into.
struct Checkpoint {
  std::shared_ptr<const format::GgufFile> file;
  ModelSpec spec;
  linalg::MatrixView embedding;   ///< [n_vocab, hidden]
  linalg::MatrixView head;        ///< [n_vocab, hidden]; the embedding if tied
  std::vector<float> final_norm;  ///< [hidden]
  std::vector<LayerTensors> layers;
};

/// Reads and checks `file`. Errors name the file and the metadata key or tensor: kNotFound
/// (missing), kCorrupt (wrong type, number out of range, wrong shape: both shapes are named) or
/// kUnsupported (architecture, tensor type, scaling, or a tensor that this architecture has no use
/// for: nothing is ignored silently).
[[nodiscard]] Result<Checkpoint> read_checkpoint(std::shared_ptr<const format::GgufFile> file);

/// The architectures read_checkpoint knows, for messages: "llama, gemma3".
[[nodiscard]] std::string supported_architectures();

/// What a model needs in memory, computed without packing anything.
struct MemoryNeeds {
  size_t file_bytes = 0;             ///< all tensors as they lie in the file
  size_t prefill_weights_bytes = 0;  ///< bf16, or as for decode; without the head
  size_t decode_weights_bytes = 0;   ///< the file's own blocks; without the head
  size_t both_weights_bytes = 0;     ///< what both classes share counts once; without the head
  size_t head_bytes = 0;             ///< the file's own blocks; both classes share it
  size_t reference_weights_bytes =
      0;  ///< float32 (BATON_KERNELS=reference; one copy for both classes)
  size_t kv_bytes_per_token_bf16 = 0;
  size_t kv_bytes_per_token_f32 = 0;
};
[[nodiscard]] MemoryNeeds memory_needs(const Checkpoint& checkpoint, linalg::KernelSet kernels);

/// Tensors, values and bytes by type name, for `baton inspect`.
struct TypeUse {
  int n_tensors = 0;
  int64_t n_values = 0;
  size_t bytes = 0;
};
[[nodiscard]] std::map<std::string, TypeUse> tensor_types(const format::GgufFile& file);

}  // namespace baton::model
