#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton::kv {
namespace {

constexpr BlockId kRoot = PrefixTree::kRoot;
using Tokens = std::vector<TokenId>;

TEST(PrefixTree, FindsExactlyWhatWasInserted) {
  PrefixTree tree(4, 2, 0);
  EXPECT_FALSE(tree.find(kRoot, Tokens{1, 2}));
  EXPECT_EQ(tree.insert(kRoot, Tokens{1, 2}, BlockId{3}), BlockId{3});
  EXPECT_EQ(tree.insert(BlockId{3}, Tokens{1, 2}, BlockId{0}), BlockId{0});
  EXPECT_EQ(tree.find(kRoot, Tokens{1, 2}), BlockId{3});
  EXPECT_EQ(tree.find(BlockId{3}, Tokens{1, 2}), BlockId{0});
  EXPECT_FALSE(tree.find(BlockId{0}, Tokens{1, 2}));
  EXPECT_FALSE(tree.find(kRoot, Tokens{2, 1}));
  EXPECT_TRUE(tree.contains(BlockId{0}));
  EXPECT_FALSE(tree.contains(BlockId{1}));
  EXPECT_EQ(tree.tokens(BlockId{3})[1], 2);
}

TEST(PrefixTree, KeepsItsOwnBlockForEqualTokens) {
  PrefixTree tree(2, 1, 0);
  EXPECT_EQ(tree.insert(kRoot, Tokens{7}, BlockId{0}), BlockId{0});
  EXPECT_EQ(tree.insert(kRoot, Tokens{7}, BlockId{1}), BlockId{0});
  EXPECT_FALSE(tree.contains(BlockId{1}));
}

// Thousands of keys in few buckets: whatever the hashes, tokens and parent decide.
TEST(PrefixTree, CollisionsAreToldApart) {
  constexpr int kN = 300;
  for (const uint64_t seed : {0U, 1U, 12345U}) {
    PrefixTree tree(kN, 1, seed);
    for (int i = 0; i < kN; ++i) {
      const BlockId parent = i < 3 ? kRoot : BlockId{i / 3 - 1};
      ASSERT_EQ(tree.insert(parent, Tokens{i % 3}, BlockId{i}), BlockId{i});
    }
    for (int parent = -1; parent < kN; ++parent) {
      for (int token = 0; token < 4; ++token) {
        const int child = (parent + 1) * 3 + token;
        const auto found = tree.find(BlockId{parent}, Tokens{token});
        ASSERT_EQ(found.has_value(), token < 3 && child < kN) << parent << ' ' << token;
        ASSERT_EQ(found.value_or(BlockId{child}), BlockId{child});
      }
    }
  }
}

TEST(PrefixTree, EvictsTheLongestIdleFirst) {
  PrefixTree tree(3, 1, 0);
  for (int i = 0; i < 3; ++i) tree.insert(kRoot, Tokens{i}, BlockId{i});
  EXPECT_EQ(tree.n_idle(), 0);
  EXPECT_FALSE(tree.evict());
  for (const int i : {1, 0, 2}) tree.set_held(BlockId{i}, false);
  tree.set_held(BlockId{1}, true);
  tree.set_held(BlockId{1}, false);
  EXPECT_EQ(tree.n_idle(), 3);
  for (const int i : {0, 2, 1}) EXPECT_EQ(tree.evict(), BlockId{i});
  EXPECT_FALSE(tree.evict());
  EXPECT_FALSE(tree.find(kRoot, Tokens{0}));
}

TEST(PrefixTree, AHeldChildPinsItsAncestors) {
  PrefixTree tree(4, 1, 0);
  tree.insert(kRoot, Tokens{0}, BlockId{0});
  tree.insert(BlockId{0}, Tokens{1}, BlockId{1});
  tree.insert(BlockId{1}, Tokens{2}, BlockId{2});
  tree.set_held(BlockId{0}, false);
  tree.set_held(BlockId{1}, false);
  EXPECT_EQ(tree.n_idle(), 0);
  tree.set_held(BlockId{2}, false);
  EXPECT_EQ(tree.n_idle(), 3);
  // A new child of an idle node pins the whole path again, but not its idle sibling.
  tree.insert(BlockId{1}, Tokens{3}, BlockId{3});
  EXPECT_EQ(tree.n_idle(), 1);
  EXPECT_TRUE(tree.idle(BlockId{2}));
  EXPECT_FALSE(tree.idle(BlockId{1}));
  EXPECT_EQ(tree.evict(), BlockId{2});
  EXPECT_FALSE(tree.evict());
  tree.set_held(BlockId{3}, false);
  for (const int i : {3, 1, 0}) EXPECT_EQ(tree.evict(), BlockId{i});
}

TEST(PrefixTreeDeathTest, MisuseAborts) {
  PrefixTree tree(3, 2, 0);
  EXPECT_DEATH((void)tree.find(kRoot, Tokens{1}), "check failed");
  EXPECT_DEATH(tree.insert(BlockId{1}, Tokens{1, 2}, BlockId{0}), "parent 1 is not in the tree");
  tree.insert(kRoot, Tokens{1, 2}, BlockId{0});
  EXPECT_DEATH(tree.insert(kRoot, Tokens{3, 4}, BlockId{0}), "in the tree for other tokens");
  EXPECT_DEATH(tree.set_held(BlockId{1}, true), "not in the tree");
  tree.set_held(BlockId{0}, false);
  EXPECT_DEATH(tree.set_held(BlockId{0}, false), "not held");
}

}  // namespace
}  // namespace baton::kv
