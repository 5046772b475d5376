#include "kv/block_pool.h"

#include "base/check.h"

namespace baton::kv {

BlockPool::BlockPool(int n_blocks) {
  BATON_CHECK(n_blocks >= 0, "{}", n_blocks);
  counts_.resize(static_cast<size_t>(n_blocks));
  free_.reserve(counts_.size());
  for (int i = n_blocks - 1; i >= 0; --i) free_.push_back(BlockId{i});
}

size_t BlockPool::index(BlockId block) const {
  BATON_CHECK(block.value >= 0 && block.value < n_blocks(), "block {} of {}", block.value,
              n_blocks());
  return static_cast<size_t>(block.value);
}

BlockId BlockPool::take() {
  BATON_CHECK(!free_.empty());
  const BlockId block = free_.back();
  free_.pop_back();
  counts_[index(block)].n_holders = 1;
  return block;
}

void BlockPool::give_back(BlockId block) {
  BATON_CHECK(n_holders(block) == 0, "block {} has {} holders", block.value, n_holders(block));
  BATON_CHECK(n_free() < n_blocks());
  free_.push_back(block);
}

int BlockPool::drop_holder(BlockId block) {
  BATON_CHECK(n_holders(block) > 0, "block {} has no holder", block.value);
  return change(block, -1, 0);
}

int BlockPool::change(BlockId block, int d_holders, int d_leases) {
  Counts& counts = counts_[index(block)];
  n_leased_ -= counts.leased() ? 1 : 0;
  counts.n_holders += d_holders;
  counts.n_leases += d_leases;
  BATON_CHECK(counts.n_leases >= 0 && counts.n_leases <= counts.n_holders,
              "block {} has {} leases and {} holders", block.value, counts.n_leases,
              counts.n_holders);
  n_leased_ += counts.leased() ? 1 : 0;
  return counts.n_holders;
}

}  // namespace baton::kv
