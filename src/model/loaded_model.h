// A model from a file with its own pool, KV memory and blocks: what a test or a measurement runs.
// For tests only.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/transformer.h"

namespace baton::model {

struct LoadOptions {
  linalg::KernelSet kernels = linalg::KernelSet::kReference;
  int n_threads = 1;
  TensorType kv_type = TensorType::kF32;
  int kv_tokens = 4096;  ///< room in the KV memory
  TransformerOptions transformer{};
};

/// Owner: one thread.
class LoadedModel {
 public:
  [[nodiscard]] static Result<std::unique_ptr<LoadedModel>> load(const std::string& path,
                                                                 const LoadOptions& options);

  [[nodiscard]] Transformer& model() { return *model_; }
  [[nodiscard]] int n_vocab() const { return model_->n_vocab(); }

  /// Blocks for `n_tokens` tokens, never handed out before (spread over the memory, not in order).
  [[nodiscard]] std::vector<BlockId> new_table(int n_tokens);
  /// K and V of one block in one layer.
  [[nodiscard]] std::span<const std::byte> kv_block(int layer, BlockId block) const;
  /// All blocks may be handed out again.
  void forget_tables();

  /// Logits of one row, given with its position.
  using RowSink = std::function<void(int position, std::span<const float> logits)>;
  /// Runs positions [begin, end) of `ids` in slices of at most `chunk`; `sink` gets the logits of
  /// positions from `first_logits` on.
  struct Run {
    std::span<const TokenId> ids;
    int begin = 0;
    int end = 0;
    linalg::KernelClass kernel_class = linalg::KernelClass::kDecode;
    int chunk = 64;
    int first_logits = 0;
  };
  void run(const Run& run, std::span<const BlockId> table, const RowSink& sink);
  /// Logits [ids.size(), n_vocab] of all positions, in one class.
  [[nodiscard]] std::vector<float> all_logits(std::span<const TokenId> ids,
                                              linalg::KernelClass kernel_class, int chunk);

 private:
  explicit LoadedModel(const LoadOptions& options);

  ThreadPool pool_;
  linalg::Workspace workspace_;
  linalg::Context context_;
  std::unique_ptr<Transformer> model_;
  kv::KvLayout layout_;
  std::vector<std::byte> memory_;
  int n_blocks_ = 0;
  int n_used_ = 0;
};

/// $BATON_CACHE/models/`file` (default ~/.cache/baton), whether it is there or not.
[[nodiscard]] std::string cached_model_path(const std::string& file);

/// reference, portable, avx2, avx512 … as far as this CPU runs them.
[[nodiscard]] std::vector<linalg::KernelSet> runnable_kernels();

}  // namespace baton::model
