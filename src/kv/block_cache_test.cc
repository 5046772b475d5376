#include "kv/block_cache.h"

#include <gtest/gtest.h>

#include <numeric>

namespace baton::kv {
namespace {

using Table = std::vector<BlockId>;
using Tokens = std::vector<TokenId>;

Table ids(std::initializer_list<int> values) {
  Table table;
  for (const int value : values) table.push_back(BlockId{value});
  return table;
}

/// A table with the KV of `tokens` computed: matched as far as known, the rest fresh and committed.
Table prefill(BlockCache& cache, const Tokens& tokens, int block_tokens) {
  Table table = cache.acquire_prefix(tokens);
  const int n = (static_cast<int>(tokens.size()) + block_tokens - 1) / block_tokens;
  EXPECT_TRUE(cache.allocate(n - static_cast<int>(table.size()), table));
  cache.commit(tokens, table);
  return table;
}

void expect_counts(const BlockCache& cache, BlockCounts expected) {
  const BlockCounts counts = cache.counts();
  EXPECT_EQ(counts.free, expected.free);
  EXPECT_EQ(counts.used, expected.used);
  EXPECT_EQ(counts.cached, expected.cached);
  EXPECT_EQ(cache.available(), expected.free + expected.cached);
}

TEST(BlockCache, ALifeOfARequest) {
  BlockCache cache(4, 2);
  EXPECT_EQ(cache.n_blocks(), 4);
  expect_counts(cache, {.free = 4, .used = 0, .cached = 0});
  const Tokens tokens{1, 2, 3, 4, 5};
  const Table table = prefill(cache, tokens, 2);
  EXPECT_EQ(table, ids({0, 1, 2}));
  expect_counts(cache, {.free = 1, .used = 3, .cached = 0});
  EXPECT_EQ(cache.match_tokens(tokens), 4) << "whole blocks only";
  EXPECT_EQ(cache.match_evictable(tokens), 0);
  cache.release(table);
  expect_counts(cache, {.free = 2, .used = 0, .cached = 2});
  EXPECT_EQ(cache.match_evictable(tokens), 2);
  EXPECT_EQ(cache.acquire_prefix(tokens), ids({0, 1}));
  expect_counts(cache, {.free = 2, .used = 2, .cached = 0});
}

TEST(BlockCache, NothingIsMatchableBeforeItIsCommitted) {
  BlockCache cache(2, 2);
  Table table;
  ASSERT_TRUE(cache.allocate(1, table));
  EXPECT_EQ(cache.match_tokens(Tokens{1, 2}), 0);
  cache.commit(Tokens{1}, table);
  EXPECT_EQ(cache.match_tokens(Tokens{1, 2}), 0);
  cache.commit(Tokens{1, 2}, table);
  EXPECT_EQ(cache.match_tokens(Tokens{1, 2}), 2);
  EXPECT_EQ(cache.match_tokens(Tokens{1}), 0);
  EXPECT_EQ(cache.match_tokens(Tokens{}), 0);
  EXPECT_EQ(cache.match_tokens(Tokens{2, 1}), 0);
}

TEST(BlockCache, AllocateIsAllOrNothing) {
  BlockCache cache(3, 1);
  Table table;
  ASSERT_TRUE(cache.allocate(2, table));
  Table other = ids({7});
  EXPECT_FALSE(cache.allocate(2, other));
  EXPECT_EQ(other, ids({7}));
  expect_counts(cache, {.free = 1, .used = 2, .cached = 0});
  EXPECT_TRUE(cache.allocate(0, other));
  EXPECT_TRUE(cache.allocate(1, other));
  EXPECT_EQ(other, ids({7, 2}));
  EXPECT_FALSE(cache.allocate(1, other));
}

TEST(BlockCache, ForkedChoicesShareUntilTheLastOneLeaves) {
  BlockCache cache(4, 2);
  Table table;
  ASSERT_TRUE(cache.allocate(2, table));
  EXPECT_FALSE(cache.shared(table[0]));
  cache.commit(Tokens{1, 2, 3}, table);
  EXPECT_TRUE(cache.shared(table[0])) << "in the tree";
  EXPECT_FALSE(cache.shared(table[1])) << "the partial tail is its holder's alone";
  cache.retain(table);
  EXPECT_TRUE(cache.shared(table[1]));
  cache.release(table);
  expect_counts(cache, {.free = 2, .used = 2, .cached = 0});
  cache.release(table);
  expect_counts(cache, {.free = 3, .used = 0, .cached = 1});
}

TEST(BlockCache, EvictsLeavesFirstAndTheLeastRecentlyUsedOfThem) {
  BlockCache cache(6, 1);
  const Table a = prefill(cache, {1, 2, 3}, 1);
  const Table b = prefill(cache, {1, 2, 4}, 1);
  EXPECT_EQ(a, ids({0, 1, 2}));
  EXPECT_EQ(b, ids({0, 1, 3}));
  cache.release(b);
  cache.release(a);
  Table table;
  ASSERT_TRUE(cache.allocate(2, table)) << "the free ones";
  ASSERT_TRUE(cache.allocate(4, table));
  EXPECT_EQ(table, ids({4, 5, 3, 2, 1, 0}));
}

TEST(BlockCache, APlanCanCountOnAvailableAndMatchEvictable) {
  BlockCache cache(4, 1);
  cache.release(prefill(cache, {1, 2, 3}, 1));
  // 2 blocks would be matched and both are among the 4 available: 2 remain for new ones.
  const Tokens tokens{1, 2, 9, 9, 9};
  EXPECT_EQ(cache.match_tokens(tokens), 2);
  EXPECT_EQ(cache.available() - cache.match_evictable(tokens), 2);
  Table table = cache.acquire_prefix(tokens);
  EXPECT_FALSE(cache.allocate(3, table));
  EXPECT_TRUE(cache.allocate(2, table));
}

TEST(BlockCache, TwoThatComputedTheSamePrefixAtTheSameTime) {
  BlockCache cache(6, 1);
  Table a;
  Table b;
  ASSERT_TRUE(cache.allocate(2, a));
  ASSERT_TRUE(cache.allocate(3, b));
  cache.commit(Tokens{1, 2}, a);
  cache.commit(Tokens{1, 2, 3}, b);
  EXPECT_EQ(cache.acquire_prefix(Tokens{1, 2, 3}), ids({0, 1, 4})) << "the first to commit stays";
  cache.release(ids({0, 1, 4}));
  cache.release(a);
  // Nobody holds a's blocks now, but b's last block hangs below them.
  expect_counts(cache, {.free = 1, .used = 5, .cached = 0});
  EXPECT_EQ(cache.match_evictable(Tokens{1, 2, 3}), 0);
  Table table;
  EXPECT_FALSE(cache.allocate(2, table));
  cache.release(b);
  expect_counts(cache, {.free = 3, .used = 0, .cached = 3});
}

TEST(BlockCache, CommitGoesOnWhereItStopped) {
  BlockCache cache(8, 2);
  Table table;
  ASSERT_TRUE(cache.allocate(4, table));
  Tokens tokens;
  for (int i = 0; i < 8; ++i) {
    tokens.push_back(i);
    cache.commit(tokens, table);
    EXPECT_EQ(cache.match_tokens(tokens), static_cast<int>(tokens.size()) / 2 * 2);
  }
  EXPECT_EQ(cache.acquire_prefix(tokens), table);
}

TEST(BlockCache, ClearForgetsOnlyWhatNobodyHolds) {
  BlockCache cache(4, 1);
  const Table held = prefill(cache, {1, 2}, 1);
  cache.release(prefill(cache, {1, 3}, 1));
  expect_counts(cache, {.free = 1, .used = 2, .cached = 1});
  cache.clear_cached();
  expect_counts(cache, {.free = 2, .used = 2, .cached = 0});
  EXPECT_EQ(cache.match_tokens(Tokens{1, 3}), 1);
  EXPECT_EQ(cache.match_tokens(Tokens{1, 2}), 2);
  cache.release(held);
  cache.clear_cached();
  expect_counts(cache, {.free = 4, .used = 0, .cached = 0});
}

TEST(BlockCache, NoBlocksAtAll) {
  BlockCache cache(0, 16);
  Table table;
  EXPECT_FALSE(cache.allocate(1, table));
  EXPECT_TRUE(cache.allocate(0, table));
  EXPECT_TRUE(cache.acquire_prefix(Tokens(100, 1)).empty());
  cache.commit(Tokens(15, 1), table);
  expect_counts(cache, {.free = 0, .used = 0, .cached = 0});
}

TEST(BlockCacheDeathTest, MisuseAborts) {
  BlockCache cache(3, 1);
  EXPECT_DEATH(cache.release(ids({0})), "no holder");
  EXPECT_DEATH(cache.retain(ids({0})), "no holder yet");
  EXPECT_DEATH((void)cache.shared(BlockId{3}), "block 3 of 3");
  EXPECT_DEATH(cache.commit(Tokens{1}, {}), "1 full blocks in a table of 0");
  EXPECT_DEATH(cache.commit(Tokens{1}, ids({0})), "not held");
}

}  // namespace
}  // namespace baton::kv
