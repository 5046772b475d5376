// What an engine is told when it is made, and what it says about itself afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/role.h"
#include "base/tensor_type.h"
#include "kv/block_cache.h"

namespace baton::engine {

/// Sizes and rules of one engine; Engine::create() checks them.
struct EngineOptions {
  /// kPrefill takes sends only. kDecode computes everything in the decode class (it needs no
  /// prefill weights) and gives up what it would preempt: its router plans that again.
  Role role = Role::kBoth;
  size_t kv_bytes = size_t{1} << 30;       ///< memory for KV blocks; whole blocks are made of it
  TensorType kv_type = TensorType::kBF16;  ///< kBF16 or kF32
  int context_tokens = 0;                  ///< longest sequence; 0 = as long as model and KV allow
  int max_batch = 64;                      ///< sequences (choices) that run at once
  int max_batched_tokens = 512;            ///< tokens of one step, decode rows first
  int mixed_prefill_tokens = 64;           ///< of them for prompts where sequences decode
  int max_queue = 2048;                    ///< requests that wait; further ones are refused
  /// Prompts of at least so many tokens run in the prefill class, others in the decode class ("Same
  /// bits"); the two don't share cached blocks, so that what is cached doesn't change the bits.
  int prefill_min_tokens = 128;
  /// Blocks that decode wrote behind a prompt of the prefill class (answers) are not matched by
  /// later prompts, whose own class for these positions is another: then no bits depend on the
  /// cache.
  bool exact_prefix = false;
  /// Names what KV depends on besides its layout (model::kv_identity); goes into the layout hash.
  std::string model_identity{};
  /// How long blocks are held for KV to come without a sign of its sender, where the request for
  /// them doesn't say.
  int64_t lease_ns = int64_t{30} * 1'000'000'000;
  uint64_t prefix_hash_seed = 0;  ///< random in a server: see kv::BlockCache
  /// A step that takes longer than this means that the engine is stuck (health()).
  int64_t stuck_after_ns = int64_t{60} * 1'000'000'000;
};

/// What a frontend has to know to check requests and write defaults.
struct EngineLimits {
  int context_tokens = 0;  ///< prompt + generated tokens of a choice never exceed this
  int n_vocab = 0;
  int n_blocks = 0;
  int block_tokens = 0;
  uint64_t layout_hash = 0;  ///< kv::layout_hash of its KV
};

/// A picture of the engine after its latest step, for /engines, /health and tests.
struct EngineStats {
  int n_running = 0;  ///< requests with at least one running choice
  int n_waiting = 0;  ///< requests that wait (never started, or preempted)
  kv::BlockCounts blocks;
  int n_leases = 0;       ///< open ones
  int n_quarantined = 0;  ///< ended ones that a sender may still be writing into
  int64_t n_steps = 0;
  int64_t n_preemptions = 0;
  int64_t last_progress_ns = 0;  ///< injected clock: when the loop last came round
  std::string last_error;        ///< the latest failure of a step; empty if there was none
};

/// Whether the step loop makes progress; `reason` says why not.
struct EngineHealth {
  bool alive = true;
  bool ready = true;
  std::string reason;
};

}  // namespace baton::engine
