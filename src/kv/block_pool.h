// The raw blocks of one engine: which are free, and how many holders each of the others has.
#pragma once

#include <vector>

#include "base/ids.h"

namespace baton::kv {

/// Reference counts and the free list. Knows nothing of tokens. Deterministic: the block freed last
/// is taken first (its memory is the likeliest to be in a CPU cache), at the start block 0.
/// Owner: BlockCache (thread-compatible).
class BlockPool {
 public:
  explicit BlockPool(int n_blocks);

  [[nodiscard]] int n_blocks() const { return static_cast<int>(n_holders_.size()); }
  [[nodiscard]] int n_free() const { return static_cast<int>(free_.size()); }
  [[nodiscard]] int n_holders(BlockId block) const { return n_holders_[index(block)]; }

  /// A free block, now with one holder. There must be one.
  [[nodiscard]] BlockId take();
  /// Gives back a block without holders.
  void give_back(BlockId block);

  /// One more holder; returns how many there are now.
  int add_holder(BlockId block) { return ++n_holders_[index(block)]; }
  /// One holder less (there must be one); returns how many are left.
  int drop_holder(BlockId block);

 private:
  [[nodiscard]] size_t index(BlockId block) const;

  std::vector<int> n_holders_;  ///< [n_blocks]
  std::vector<BlockId> free_;   ///< a stack
};

}  // namespace baton::kv
