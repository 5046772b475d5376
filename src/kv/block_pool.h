// The raw blocks of one engine: which are free, and how many holders each of the others has. A
// block is leased while all of its holders are leases.
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

  [[nodiscard]] int n_blocks() const { return static_cast<int>(counts_.size()); }
  [[nodiscard]] int n_free() const { return static_cast<int>(free_.size()); }
  [[nodiscard]] int n_leased() const { return n_leased_; }
  [[nodiscard]] int n_holders(BlockId block) const { return counts_[index(block)].n_holders; }

  /// A free block, now with one holder. There must be one.
  [[nodiscard]] BlockId take();
  /// Gives back a block without holders.
  void give_back(BlockId block);

  /// One more holder; returns how many there are now.
  int add_holder(BlockId block) { return change(block, 1, 0); }
  /// One holder less (there must be one); returns how many are left.
  int drop_holder(BlockId block);
  /// One of a block's holders is a lease, or isn't one any more.
  void add_lease(BlockId block) { change(block, 0, 1); }
  void drop_lease(BlockId block) { change(block, 0, -1); }

 private:
  struct Counts {
    int n_holders = 0;
    int n_leases = 0;  ///< of these
    [[nodiscard]] bool leased() const { return n_leases > 0 && n_leases == n_holders; }
  };
  [[nodiscard]] size_t index(BlockId block) const;
  /// Returns the new number of holders.
  int change(BlockId block, int d_holders, int d_leases);

  std::vector<Counts> counts_;  ///< [n_blocks]
  std::vector<BlockId> free_;   ///< a stack
  int n_leased_ = 0;
};

}  // namespace baton::kv
