// The KV blocks of one engine: who holds them, what is cached, what can be evicted. Pure logic.
//
// A block is in exactly one state: free, used (some request holds it; it may be in the prefix tree
// too), leased (held by leases only, for KV that another engine sends) or cached (only the prefix
// tree knows it; evictable, least recently used first). A block that only the tree knows counts as
// used as long as a block after it in the tree is: it can't be evicted before that one. (Happens
// when two requests computed the same prefix at the same time.)
//
// Below: BlockPool (block_pool.h) counts holders, PrefixTree (prefix_tree.h) knows tokens and LRU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"

namespace baton::kv {

struct BlockCounts {
  int free = 0;
  int used = 0;
  int cached = 0;
  int leased = 0;
};

/// Block pool + prefix tree of one engine. Owner: the engine thread (thread-compatible).
/// Invariant: free + used + cached + leased = n_blocks.
class BlockCache {
 public:
  /// `hash_seed` has no influence on results; a random one keeps clients from sending prompts whose
  /// hashes collide, which would make matching slow.
  BlockCache(int n_blocks, int block_tokens, uint64_t hash_seed = 0);
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

  /// Appends `n` fresh blocks with one reference each, evicting as needed. All or nothing: false
  /// leaves cache and table as they were.
  [[nodiscard]] bool allocate(int n, std::vector<BlockId>& table);
  /// One more holder of each block (forked choices share their prompt's blocks).
  void retain(std::span<const BlockId> blocks);
  /// Drops one reference of each block. Without holders a block becomes cached if the tree has it,
  /// else free. Later blocks of a table become evictable before earlier ones.
  void release(std::span<const BlockId> blocks);
  /// One hold on each block becomes a lease's, or a request's again.
  void mark_leased(std::span<const BlockId> blocks);
  void unmark_leased(std::span<const BlockId> blocks);
  /// More than one holder, or in the prefix tree: writing it needs a copy first.
  [[nodiscard]] bool shared(BlockId block) const;

  /// Makes the KV of `tokens` (whole blocks; a partial tail is ignored), computed and lying in
  /// `table` (held by the caller, and at least as long), matchable. Where the tree already has an
  /// equal block, it keeps its own; the caller's table stays as it is. Calling it again with more
  /// tokens costs only the new blocks.
  void commit(std::span<const TokenId> tokens, std::span<const BlockId> table);
  /// Forgets every block in the state cached (tests, and a model reload once no request is left).
  void clear_cached();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::kv
