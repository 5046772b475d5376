// The kinds of work of a step, one file each, tried in order: decode (decode_action), then prefill
// (prefill_action). Each adds its slices to the batch, as far as budget and blocks allow.
#pragma once

#include "engine/batch.h"
#include "engine/scheduler.h"

namespace baton::engine {

/// One kind of work. Owner: EngineCore; used by the engine thread only.
class Action {
 public:
  virtual ~Action() = default;
  virtual void plan(Scheduler& scheduler, Batch& batch) = 0;
};

/// One row for each sequence that generates; makes room for the next token's KV first, by
/// preemption if it must (worst sequence first).
class DecodeAction final : public Action {
 public:
  void plan(Scheduler& scheduler, Batch& batch) override;
};

/// Chunks of prompts, first come first served: first of running ones, then, while tokens are left,
/// of the head of the queue. Prefill-class chunks are cut at multiples of 128 tokens, else of 16.
class PrefillAction final : public Action {
 public:
  void plan(Scheduler& scheduler, Batch& batch) override;
};

}  // namespace baton::engine
