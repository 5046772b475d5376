// The kinds of work of a step, one file each, tried in order: what other engines have sent
// (receive_action.h), decode, prefill (of sends as well), sends of what is cached. Each adds its
// part to the batch, as far as budget and blocks allow.
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
/// In a step in which sequences decode, prompts get at most `mixed_tokens`: what those wait for.
class PrefillAction final : public Action {
 public:
  explicit PrefillAction(int mixed_tokens) : mixed_tokens_(mixed_tokens) {}
  void plan(Scheduler& scheduler, Batch& batch) override;

 private:
  int mixed_tokens_;
};

/// Sends with cached KV that isn't put yet, or with nothing left to compute.
class SendAction final : public Action {
 public:
  void plan(Scheduler& scheduler, Batch& batch) override;
};

}  // namespace baton::engine
