#include "kv/block_pool.h"

#include "base/check.h"

namespace baton::kv {

BlockPool::BlockPool(int n_blocks) {
  BATON_CHECK(n_blocks >= 0, "{}", n_blocks);
  n_holders_.assign(static_cast<size_t>(n_blocks), 0);
  free_.reserve(n_holders_.size());
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
  n_holders_[index(block)] = 1;
  return block;
}

void BlockPool::give_back(BlockId block) {
  BATON_CHECK(n_holders(block) == 0, "block {} has {} holders", block.value, n_holders(block));
  BATON_CHECK(n_free() < n_blocks());
  free_.push_back(block);
}

int BlockPool::drop_holder(BlockId block) {
  int& n_holders = n_holders_[index(block)];
  BATON_CHECK(n_holders > 0, "block {} has no holder", block.value);
  return --n_holders;
}

}  // namespace baton::kv
