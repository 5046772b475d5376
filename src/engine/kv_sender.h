// The sending side of a handoff: puts the KV of a send's prompt into its receiver's blocks, layer
// by layer while the forward pass goes on, and signals when all of it is there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/trace.h"
#include "engine/batch.h"
#include "engine/kv_memory.h"
#include "engine/metrics.h"
#include "engine/options.h"
#include "model/token_model.h"

namespace baton::engine {

/// A put that fails ends its own send only: what was put before stays, and nothing more is put for
/// it. Putting the same blocks again is harmless (same bits), so a pass may be repeated.
/// Owner: EngineCore; used by the engine thread only, except check().
class KvSender final : public model::LayerHook {
 public:
  struct Deps {
    shmem::Heap* heap = nullptr;  ///< null: outside of any world, everything is refused
    const Clock* clock = nullptr;
    Trace* trace = nullptr;  ///< may be null
    const KvMemory* memory = nullptr;
    EngineMetrics* metrics = nullptr;
  };
  KvSender(const EngineOptions& options, const EngineLimits& limits, const Deps& deps);

  /// Whether it could ever be sent from here. Thread-safe.
  [[nodiscard]] Status check(const RemoteSend& request) const;
  /// Finds the receiver. kUnavailable: it is gone.
  [[nodiscard]] Result<std::unique_ptr<Send>> open(const RemoteSend& request) const;

  /// A sign of life to the receiver, whose lease it renews while a send waits for its turn. An
  /// error says that the receiver is gone, or wants it no more.
  [[nodiscard]] Status touch(const Send& send);
  /// Puts what a send has computed, or found in the cache, and not put yet: in all layers.
  void put_cached(Sequence& sequence);
  /// The next forward pass is of `items`; whether it has anything to put.
  [[nodiscard]] bool begin_pass(std::span<const BatchItem> items);
  void on_layer_begin(int layer, linalg::KernelClass kernel_class) override;
  void on_kv_stored(int layer, linalg::KernelClass kernel_class) override;
  /// False once every put of a pass that was for nothing else has failed: a cancelled prompt costs
  /// its engine a layer, not a step.
  [[nodiscard]] bool on_layer_end(int layer, linalg::KernelClass kernel_class) override;
  /// The latest pass was given up half-way: nothing of it may be used.
  [[nodiscard]] bool gave_up_pass() const { return gave_up_pass_; }
  /// Everything was put: tells the receiver.
  [[nodiscard]] Status signal(Send& send);

 private:
  /// What one send puts in each layer of a pass.
  struct Part {
    Sequence* sequence = nullptr;
    int begin = 0;  ///< tokens, whole blocks
    int end = 0;
  };
  /// The blocks of tokens [begin, end) of one layer.
  void put(const Part& part, int layer);
  void trace_layer(int layer);
  void collect_pieces(const Part& part, int layer);

  EngineOptions options_;
  EngineLimits limits_;
  Deps deps_;
  std::vector<Part> parts_;
  bool only_sends_ = false;  ///< every item of the pass has a part
  bool gave_up_pass_ = false;
  std::vector<std::string> labels_;  ///< of the parts, when there is a trace
  int64_t n_pass_tokens_ = 0;
  int64_t layer_begin_ns_ = 0;
  std::vector<shmem::Piece> pieces_;  ///< scratch
};

}  // namespace baton::engine
