// A model without weights, for tests of what drives a model: its logits are a hash of the
// sequence's tokens, which it can only know from the KV blocks that it is given.
//
// Every position's KV holds, in each layer: token, position, kernel class, and a hash of all this
// for [0, position]. A forward pass reads the chain back from the blocks before it goes on, and
// notes every link that doesn't hold. So a wrong block table, a block overwritten by another
// sequence or a missing copy shows, as a fault or as logits that differ from those of the sequence
// run alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/token_model.h"

namespace baton::testing {

struct StandInOptions {
  int n_vocab = 64;
  int context_length = 4096;
  /// The kernel class of each position is part of the hash: a position computed by the other class
  /// changes every later token, as it changes the last bits in a real model.
  bool class_matters = true;
};

/// Owner: the engine thread; the counters may be read when it is idle.
class StandInModel final : public model::TokenModel {
 public:
  explicit StandInModel(const StandInOptions& options = {}) : options_(options) {}

  [[nodiscard]] int n_vocab() const override { return options_.n_vocab; }
  [[nodiscard]] int context_length() const override { return options_.context_length; }
  [[nodiscard]] kv::KvLayout kv_layout(int n_blocks, TensorType type) const override;
  void bind_kv(const kv::KvLayout& layout, std::byte* memory) override;
  void forward(std::span<const model::SeqSlice> slices, float* logits,
               model::LayerHook* hook = nullptr) override;

  /// Called at the start of each pass: may block (to hold the engine in a state) or throw.
  std::function<void(std::span<const model::SeqSlice>)> on_forward;
  /// Called when a layer's KV is stored, for each layer of each class that a batch has.
  std::function<void(int layer)> on_layer;
  /// A sequence with this token gets logits that are not a number. -1 = none.
  TokenId poison_token = -1;

  [[nodiscard]] const std::vector<std::string>& faults() const { return faults_; }
  [[nodiscard]] int64_t n_passes() const { return n_passes_; }
  [[nodiscard]] int64_t n_tokens() const { return n_tokens_; }
  [[nodiscard]] int max_pass_tokens() const { return max_pass_tokens_; }

 private:
  /// What lies in a token's K, in 16 bytes.
  struct Entry {
    int32_t token;
    int16_t position;
    int16_t kernel_class;
    uint64_t chain;
  };
  [[nodiscard]] std::byte* place(int layer, const model::SeqSlice& slice, int position) const;
  [[nodiscard]] Entry link(uint64_t before, int layer, int position, TokenId token,
                           linalg::KernelClass kernel_class) const;
  [[nodiscard]] uint64_t read_chain(const model::SeqSlice& slice, int layer);
  /// `seen` [tokens]: what each position has seen in all layers so far.
  void forward_layer(const model::SeqSlice& slice, int layer, std::span<uint64_t> seen);
  float* write_logits(const model::SeqSlice& slice, std::span<const uint64_t> seen,
                      float* logits) const;
  void check_writes(std::span<const model::SeqSlice> slices);

  StandInOptions options_;
  kv::KvLayout layout_;
  std::byte* memory_ = nullptr;
  std::vector<std::string> faults_;
  int64_t n_passes_ = 0;
  int64_t n_tokens_ = 0;
  int max_pass_tokens_ = 0;
};

}  // namespace baton::testing
