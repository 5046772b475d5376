// The KV blocks of one engine: who holds them, what is cached, what can be evicted. Pure logic.
//
// A block is in exactly one state: free, used (some request holds it; it may be in the prefix tree
// too) or cached (only the prefix tree knows it; evictable, least recently used first).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"

namespace baton::kv {

struct BlockCounts {
  int free = 0;
  int used = 0;
  int cached = 0;
};

/// Block pool + prefix tree of one engine. Owner: the engine thread (thread-compatible).
/// Invariant: free + used + cached = n_blocks.
class BlockCache {
 public:
  BlockCache(int n_blocks, int block_tokens);
  ~BlockCache();

  [[nodiscard]] BlockCounts counts() const;
  [[nodiscard]] int n_blocks() const;
  /// Blocks an allocate() can get: free + cached.
  [[nodiscard]] int available() const;

  /// Cached tokens at the start of `tokens`, whole blocks only, without taking them.
  [[nodiscard]] int match_tokens(std::span<const TokenId> tokens) const;
  /// How many of the blocks that `tokens` would match are evictable now, i.e. counted in
  /// available(): a plan needs them when it both takes a prefix and allocates.
  [[nodiscard]] int match_evictable(std::span<const TokenId> tokens) const;
  /// Takes (one reference each) the blocks of the longest cached prefix of `tokens`, whole blocks
  /// only.
  [[nodiscard]] std::vector<BlockId> acquire_prefix(std::span<const TokenId> tokens);

  /// Appends `n` fresh blocks with one reference each, evicting as needed. All or nothing.
  [[nodiscard]] bool allocate(int n, std::vector<BlockId>& table);
  /// One more holder of each block (forked choices share their prompt's blocks).
  void retain(std::span<const BlockId> blocks);
  /// Drops one reference of each block. Without holders a block becomes cached if the tree has it,
  /// else free. Later blocks of a table become evictable before earlier ones.
  void release(std::span<const BlockId> blocks);
  /// More than one holder, or in the prefix tree: writing it needs a copy first.
  [[nodiscard]] bool shared(BlockId block) const;

  /// Makes the KV of `tokens` (whole blocks; a partial tail is ignored), computed and lying in
  /// `table`, matchable. Where the tree already has an equal block, it keeps its own.
  void commit(std::span<const TokenId> tokens, std::span<const BlockId> table);
  /// Forgets every cached block (tests, and a model reload).
  void clear_cached();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::kv
