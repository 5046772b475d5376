#include "kv/block_cache.h"

#include "base/check.h"
#include "kv/block_pool.h"
#include "kv/prefix_tree.h"

namespace baton::kv {

struct BlockCache::Impl {
  Impl(int n_blocks, int n_tokens, uint64_t hash_seed)
      : block_tokens(static_cast<size_t>(n_tokens)),
        pool(n_blocks),
        tree(n_blocks, n_tokens, hash_seed) {}

  [[nodiscard]] std::span<const TokenId> block_of(std::span<const TokenId> tokens, size_t i) const {
    return tokens.subspan(i * block_tokens, block_tokens);
  }

  /// Calls fn(block) for each block of the longest matching prefix, first to last.
  template <typename Fn>
  void for_each_match(std::span<const TokenId> tokens, Fn&& fn) const {
    BlockId parent = PrefixTree::kRoot;
    for (size_t i = 0; i < tokens.size() / block_tokens; ++i) {
      const auto block = tree.find(parent, block_of(tokens, i));
      if (!block) return;
      fn(*block);
      parent = *block;
    }
  }

  void hold(BlockId block) {
    if (pool.add_holder(block) == 1) tree.set_held(block, true);
  }

  void drop(BlockId block) {
    if (pool.drop_holder(block) > 0) return;
    if (tree.contains(block)) {
      tree.set_held(block, false);
    } else {
      pool.give_back(block);
    }
  }

  const size_t block_tokens;
  BlockPool pool;
  PrefixTree tree;
};

BlockCache::BlockCache(int n_blocks, int block_tokens, uint64_t hash_seed)
    : impl_(std::make_unique<Impl>(n_blocks, block_tokens, hash_seed)) {}

BlockCache::~BlockCache() = default;

int BlockCache::n_blocks() const { return impl_->pool.n_blocks(); }

int BlockCache::available() const { return impl_->pool.n_free() + impl_->tree.n_idle(); }

BlockCounts BlockCache::counts() const {
  return {.free = impl_->pool.n_free(),
          .used = n_blocks() - available() - impl_->pool.n_leased(),
          .cached = impl_->tree.n_idle(),
          .leased = impl_->pool.n_leased()};
}

int BlockCache::match_tokens(std::span<const TokenId> tokens) const {
  int n_tokens = 0;
  impl_->for_each_match(tokens,
                        [&](BlockId) { n_tokens += static_cast<int>(impl_->block_tokens); });
  return n_tokens;
}

int BlockCache::match_evictable(std::span<const TokenId> tokens) const {
  int n_blocks = 0;
  impl_->for_each_match(tokens,
                        [&](BlockId block) { n_blocks += impl_->tree.idle(block) ? 1 : 0; });
  return n_blocks;
}

std::vector<BlockId> BlockCache::acquire_prefix(std::span<const TokenId> tokens) {
  std::vector<BlockId> table;
  impl_->for_each_match(tokens, [&](BlockId block) {
    impl_->hold(block);
    table.push_back(block);
  });
  return table;
}

bool BlockCache::allocate(int n, std::vector<BlockId>& table) {
  BATON_CHECK(n >= 0, "{} blocks", n);
  if (n > available()) return false;
  for (int i = 0; i < n; ++i) {
    if (impl_->pool.n_free() == 0) impl_->pool.give_back(*impl_->tree.evict());
    table.push_back(impl_->pool.take());
  }
  return true;
}

void BlockCache::retain(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    const int n_holders = impl_->pool.add_holder(block);
    BATON_CHECK(n_holders > 1, "block {} has no holder yet", block.value);
  }
}

// Last block first, so that a prefix outlives what was built on it.
void BlockCache::release(std::span<const BlockId> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) impl_->drop(blocks[i]);
}

void BlockCache::mark_leased(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) impl_->pool.add_lease(block);
}

void BlockCache::unmark_leased(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) impl_->pool.drop_lease(block);
}

bool BlockCache::shared(BlockId block) const {
  return impl_->pool.n_holders(block) > 1 || impl_->tree.contains(block);
}

void BlockCache::commit(std::span<const TokenId> tokens, std::span<const BlockId> table) {
  const size_t n = tokens.size() / impl_->block_tokens;
  BATON_CHECK(n <= table.size(), "{} full blocks in a table of {}", n, table.size());
  // A block of this table that is in the tree was matched or committed with the same tokens, and so
  // was all before it: go on behind the last such block.
  size_t n_done = n;
  for (; n_done > 0; --n_done) {
    const BlockId block = table[n_done - 1];
    BATON_CHECK(impl_->pool.n_holders(block) > 0, "block {} is not held", block.value);
    if (impl_->tree.contains(block)) break;
  }
  BlockId parent = n_done == 0 ? PrefixTree::kRoot : table[n_done - 1];
  for (size_t i = n_done; i < n; ++i) {
    parent = impl_->tree.insert(parent, impl_->block_of(tokens, i), table[i]);
  }
}

void BlockCache::clear_cached() {
  while (const auto block = impl_->tree.evict()) impl_->pool.give_back(*block);
}

}  // namespace baton::kv
