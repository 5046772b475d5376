#include "kv/prefix_tree.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace baton::kv {

PrefixTree::PrefixTree(int n_blocks, int block_tokens, uint64_t hash_seed)
    : block_tokens_(block_tokens), hash_seed_(hash_seed) {
  BATON_CHECK(n_blocks >= 0 && block_tokens > 0, "{} blocks of {} tokens", n_blocks, block_tokens);
  const auto n = static_cast<size_t>(n_blocks);
  nodes_.resize(n);
  tokens_.resize(n * static_cast<size_t>(block_tokens));
  buckets_.assign(std::bit_ceil(n + 1), kRoot);
}

std::span<const TokenId> PrefixTree::tokens(BlockId block) const {
  const auto n = static_cast<size_t>(block_tokens_);
  return {tokens_.data() + slot(block) * n, n};
}

size_t PrefixTree::bucket(BlockId parent, std::span<const TokenId> tokens) const {
  // The golden ratio spreads consecutive parents over the seeds.
  const uint64_t seed =
      hash_seed_ ^ (static_cast<uint64_t>(parent.value + 1) * 0x9E3779B97F4A7C15U);
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), seed) & (buckets_.size() - 1);
}

std::optional<BlockId> PrefixTree::find(BlockId parent, std::span<const TokenId> tokens) const {
  BATON_CHECK(std::ssize(tokens) == block_tokens_);
  return find_in(bucket(parent, tokens), parent, tokens);
}

std::optional<BlockId> PrefixTree::find_in(size_t bucket, BlockId parent,
                                           std::span<const TokenId> tokens) const {
  BlockId block = buckets_[bucket];
  while (block != kRoot) {
    const Node& candidate = nodes_[slot(block)];
    if (candidate.parent == parent && std::ranges::equal(this->tokens(block), tokens)) return block;
    block = candidate.next_in_bucket;
  }
  return std::nullopt;
}

BlockId PrefixTree::insert(BlockId parent, std::span<const TokenId> tokens, BlockId block) {
  BATON_CHECK(std::ssize(tokens) == block_tokens_);
  BATON_CHECK(parent == kRoot || contains(parent), "parent {} is not in the tree", parent.value);
  const size_t home = bucket(parent, tokens);
  if (const auto existing = find_in(home, parent, tokens)) return *existing;
  BATON_CHECK(!contains(block), "block {} is in the tree for other tokens", block.value);
  std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(block.value) * block_tokens_);
  node(block) =
      Node{.in_tree = true, .n_pins = 1, .parent = parent, .next_in_bucket = buckets_[home]};
  buckets_[home] = block;
  pin(parent);
  return block;
}

void PrefixTree::set_held(BlockId block, bool held) {
  BATON_CHECK(contains(block), "block {} is not in the tree", block.value);
  if (held) {
    pin(block);
  } else {
    unpin(block);
  }
}

// A node's first pin pins its parent too, its last unpin unpins it: n_pins counts both kinds.
void PrefixTree::pin(BlockId block) {
  for (; block != kRoot; block = node(block).parent) {
    if (node(block).n_pins++ > 0) return;
    lru_remove(block);
  }
}

void PrefixTree::unpin(BlockId block) {
  for (; block != kRoot; block = node(block).parent) {
    BATON_CHECK(node(block).n_pins > 0, "block {} is not held", block.value);
    if (--node(block).n_pins > 0) return;
    lru_append(block);
  }
}

std::optional<BlockId> PrefixTree::evict() {
  if (oldest_ == kRoot) return std::nullopt;
  const BlockId block = oldest_;
  lru_remove(block);
  BlockId* link = &buckets_[bucket(node(block).parent, tokens(block))];
  while (*link != block) link = &node(*link).next_in_bucket;
  *link = node(block).next_in_bucket;
  node(block) = Node{};
  return block;
}

void PrefixTree::lru_append(BlockId block) {
  node(block).older = newest_;
  node(block).newer = kRoot;
  (newest_ == kRoot ? oldest_ : node(newest_).newer) = block;
  newest_ = block;
  ++n_idle_;
}

void PrefixTree::lru_remove(BlockId block) {
  const BlockId older = node(block).older;
  const BlockId newer = node(block).newer;
  (older == kRoot ? oldest_ : node(older).newer) = newer;
  (newer == kRoot ? newest_ : node(newer).older) = older;
  node(block).older = kRoot;
  node(block).newer = kRoot;
  --n_idle_;
}

}  // namespace baton::kv
