// Which blocks hold the KV of which token prefix, and which of them can be forgotten first.
//
// A node is a block: it stands for the tokens of its own block after those of all its ancestors,
// and for nothing else, since KV depends on everything before it. Matches compare the tokens
// themselves; hashes only find the candidates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace baton::kv {

/// Prefix tree over whole token blocks with an LRU list. All operations take O(1) expected time,
/// besides the walk over ancestors that set_held() may do, and none allocates memory.
///
/// A node is pinned while it is held or has a pinned child; the others are idle and stand in the
/// LRU list in the order in which they became idle. A node becomes idle after all of its
/// descendants, so the front of the list is always a leaf: evicting from the front never orphans a
/// child. Owner: BlockCache (thread-compatible).
class PrefixTree {
 public:
  /// The parent of first blocks.
  static constexpr BlockId kRoot{-1};

  /// Blocks [0, n_blocks) of `block_tokens` tokens. `hash_seed` has no influence on results.
  PrefixTree(int n_blocks, int block_tokens, uint64_t hash_seed);

  /// The child of `parent` that holds exactly `tokens` [block_tokens].
  [[nodiscard]] std::optional<BlockId> find(BlockId parent, std::span<const TokenId> tokens) const;
  [[nodiscard]] bool contains(BlockId block) const { return nodes_[slot(block)].in_tree; }
  /// In the tree, and pinned by nobody.
  [[nodiscard]] bool idle(BlockId block) const {
    return contains(block) && nodes_[slot(block)].n_pins == 0;
  }
  [[nodiscard]] int n_idle() const { return n_idle_; }
  /// The tokens [block_tokens] of a block in the tree.
  [[nodiscard]] std::span<const TokenId> tokens(BlockId block) const;

  /// The child of `parent` for `tokens`: the one there is, else `block`, which becomes it. `block`
  /// is held by somebody and, if it is needed, not in the tree yet.
  BlockId insert(BlockId parent, std::span<const TokenId> tokens, BlockId block);
  /// Tells whether somebody holds `block` now; to be called at each change.
  void set_held(BlockId block, bool held);
  /// Removes the node that has been idle for longest; nothing if there is none.
  std::optional<BlockId> evict();

 private:
  struct Node {
    bool in_tree = false;
    int n_pins = 0;  ///< 1 if held, plus the number of pinned children
    BlockId parent = kRoot;
    BlockId next_in_bucket = kRoot;
    BlockId older = kRoot;  ///< neighbours in the LRU list
    BlockId newer = kRoot;
  };

  [[nodiscard]] static size_t slot(BlockId block) { return static_cast<size_t>(block.value); }
  Node& node(BlockId block) { return nodes_[slot(block)]; }
  [[nodiscard]] size_t bucket(BlockId parent, std::span<const TokenId> tokens) const;
  [[nodiscard]] std::optional<BlockId> find_in(size_t bucket, BlockId parent,
                                               std::span<const TokenId> tokens) const;
  void pin(BlockId block);
  void unpin(BlockId block);
  void lru_append(BlockId block);
  void lru_remove(BlockId block);

  int block_tokens_;
  uint64_t hash_seed_;
  std::vector<Node> nodes_;       ///< [n_blocks]
  std::vector<TokenId> tokens_;   ///< [n_blocks, block_tokens]
  std::vector<BlockId> buckets_;  ///< first block of each hash chain; a power of two of them
  BlockId oldest_ = kRoot;        ///< ends of the LRU list; kRoot = empty
  BlockId newest_ = kRoot;
  int n_idle_ = 0;
};

}  // namespace baton::kv
