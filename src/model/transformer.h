// The one transformer: weights laid out per phase, and the forward pass over batches of slices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "linalg/attention.h"
#include "model/checkpoint.h"
#include "model/packed_cache.h"
#include "model/token_model.h"

namespace baton::model {

struct TransformerOptions {
  /// Which phases' weights to pack. A slice of a class without weights must not be passed to
  /// forward(). A layer that is alike in both classes (linalg::classes_agree) is packed once.
  bool with_prefill_weights = true;
  bool with_decode_weights = true;
  int context_length = 0;  ///< tokens; 0 = the model's own; more than that is refused
  /// What the prefill class multiplies quantised weights with. kInt8 is for kernel sets with
  /// has_int8_activations().
  linalg::ActivationType prefill_activations = linalg::ActivationType::kInt16;
  PackedCacheOptions packed_cache{};
};

/// One kind of matrix product, for /version and `inspect`.
struct GemmInfo {
  std::string name;  ///< "qkv", "attention_output", "gate_up", "down", "head"
  linalg::KernelClass kernel_class = linalg::KernelClass::kDecode;
  std::string implementation;  ///< Linear::describe() or describe_int8()
  int n_matrices = 0;          ///< how many layers use this implementation
  size_t bytes = 0;            ///< of all of them
};

/// Decoder-only transformer, driven by the checkpoint's ModelSpec. Every row of a batch is computed
/// in the class of its slice and by operations whose bits don't depend on the other rows, so a
/// position's result depends on its token, its history and its class alone ("Same bits").
///
/// The head is always of the decode class: few rows of a prompt need logits, 15-bit activations are
/// as accurate as bf16 ones, and the largest matrix of a small model is held once, in the file's
/// own blocks.
///
/// Of the last layer only keys and values are computed for rows that want no logits.
///
/// Owner: the engine thread (thread-compatible), which owns the Context too. Lifecycle: create(),
/// bind_kv(), then forward() any number of times.
class Transformer final : public TokenModel {
 public:
  /// Packs the weights; the file stays mapped for the embedding. `context` must outlive the model.
  [[nodiscard]] static Result<std::unique_ptr<Transformer>> create(
      linalg::Context& context, Checkpoint checkpoint, const TransformerOptions& options);

  [[nodiscard]] int n_vocab() const override { return spec().n_vocab; }
  [[nodiscard]] int context_length() const override { return context_length_; }
  [[nodiscard]] kv::KvLayout kv_layout(int n_blocks, TensorType type) const override;
  void bind_kv(const kv::KvLayout& layout, std::byte* memory) override;
  void forward(std::span<const SeqSlice> slices, float* logits, LayerHook* hook = nullptr) override;

  [[nodiscard]] const ModelSpec& spec() const { return checkpoint_.spec; }
  [[nodiscard]] std::vector<GemmInfo> gemms() const;
  /// Bytes of all packed weights; what both classes share counts once.
  [[nodiscard]] size_t weights_bytes() const;
  /// They were read from the cache, none was packed.
  [[nodiscard]] bool weights_cached() const { return weights_cached_; }
  [[nodiscard]] linalg::ActivationType prefill_activations() const { return prefill_activations_; }
  /// model::kv_identity of the checkpoint, kernels and activations.
  [[nodiscard]] const std::string& kv_identity() const { return kv_identity_; }

 private:
  struct LayerWeights {
    std::shared_ptr<const linalg::Linear> qkv;      ///< hidden → qkv_width
    std::shared_ptr<const linalg::Linear> output;   ///< q_width → hidden
    std::shared_ptr<const linalg::Linear> gate_up;  ///< hidden → 2 * ffn
    std::shared_ptr<const linalg::Linear> down;     ///< ffn → hidden
  };
  /// The layers' matrices in the layout of one class.
  using Weights = std::vector<LayerWeights>;
  /// The last n_rows rows of sequence `seq` have their logits at [logits_row, logits_row + n_rows).
  struct LogitRows {
    size_t seq = 0;
    int64_t logits_row = 0;
    int n_rows = 0;
  };
  /// The slices of one class as one matrix of rows.
  struct Group {
    linalg::KernelClass kernel_class = linalg::KernelClass::kDecode;
    std::vector<TokenId> tokens;  ///< [n_rows]
    std::vector<int> positions;   ///< [n_rows]
    std::vector<linalg::SeqRows> seqs;
    std::vector<LogitRows> outputs;
    [[nodiscard]] int64_t n_rows() const { return static_cast<int64_t>(tokens.size()); }
  };
  /// Scratch of one group's pass.
  struct Buffers {
    float* normed = nullptr;     ///< [n_rows, hidden]
    float* qkv = nullptr;        ///< [n_rows, qkv_width]
    float* attended = nullptr;   ///< [n_rows, q_width]
    float* branch = nullptr;     ///< [n_rows, hidden]: what attention or MLP adds to the residual
    float* gate_up = nullptr;    ///< [n_rows, 2 * ffn]
    float* activated = nullptr;  ///< [n_rows, ffn]
  };

  Transformer(linalg::Context& context, Checkpoint checkpoint, const TransformerOptions& options);
  Status pack_all(const TransformerOptions& options);
  Result<std::unique_ptr<linalg::Linear>> pack_one(linalg::KernelClass kernel_class,
                                                   std::span<const linalg::MatrixView> stacked,
                                                   linalg::PackedFile& file) const;
  /// Layers that are alike in both classes are taken from `other` (null: there is none).
  Result<std::unique_ptr<Weights>> pack(linalg::KernelClass kernel_class, const Weights* other,
                                        linalg::PackedFile& file) const;
  [[nodiscard]] const Weights& weights(linalg::KernelClass kernel_class) const;
  /// A class may have weights of its own, or the other's with other activations.
  [[nodiscard]] bool int8(linalg::KernelClass kernel_class) const;
  /// y = x Wᵀ in the arithmetic of the group's class.
  void multiply(const linalg::Linear& linear, const float* x, float* y);

  void gather(std::span<const SeqSlice> slices, linalg::KernelClass kernel_class);
  void grow_rope_tables(int n_positions);
  [[nodiscard]] bool run_layers(const Buffers& buffers, float* x, LayerHook* hook);
  void attention_branch(int layer, const LayerWeights& weights, const Buffers& buffers, float* x,
                        LayerHook* hook);
  void keep_output_rows(const Buffers& buffers, float* x);
  void mlp_branch(int layer, const LayerWeights& weights, const Buffers& buffers, float* x);
  void head(const Buffers& buffers, const float* x, float* logits);

  linalg::Context& context_;
  Checkpoint checkpoint_;
  int context_length_;
  linalg::ActivationType prefill_activations_;
  std::string kv_identity_;
  bool weights_cached_ = false;
  std::unique_ptr<Weights> prefill_;      ///< nullptr if not wanted or shared
  std::unique_ptr<Weights> decode_;       ///< with the reference kernels: of both classes
  std::unique_ptr<linalg::Linear> head_;  ///< hidden → n_vocab, decode class
  std::vector<linalg::RopeTable>
      rope_tables_;                  ///< one for each of spec().ropes; grow with the positions seen
  std::vector<linalg::KvLayer> kv_;  ///< one for each layer
  Group group_;                      ///< reused, so that a steady step allocates nothing
};

}  // namespace baton::model
