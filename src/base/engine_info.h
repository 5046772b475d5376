// What an engine tells the router about itself: once when their connection comes up, and then a
// picture of its state with everything it sends (docs/protocol.md has the JSON).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/role.h"

namespace baton {

/// What an engine says about itself when a router attaches. Doesn't change while it lives.
struct EngineInfo {
  Role role = Role::kBoth;
  uint64_t incarnation = 0;
  int pid = 0;
  std::vector<int> cpus;
  int context_tokens = 0;
  int n_vocab = 0;
  int n_blocks = 0;
  int block_tokens = 0;
  int max_batch = 0;
  int prefill_min_tokens = 0;
  uint64_t layout_hash = 0;  ///< of KV: engines with another can't hand over to each other
  bool in_world = false;     ///< has a place in a symmetric world: can send or receive KV
};

/// A picture of an engine, sent with every frame (at least once a second).
struct EngineState {
  bool alive = true;   ///< it can make progress
  bool ready = true;   ///< it takes new requests
  std::string reason;  ///< why not
  int n_running = 0;   ///< requests
  int n_waiting = 0;
  int blocks_free = 0;
  int blocks_used = 0;
  int blocks_cached = 0;
  int blocks_leased = 0;
};

}  // namespace baton
