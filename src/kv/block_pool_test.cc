#include "kv/block_pool.h"

#include <gtest/gtest.h>

namespace baton::kv {
namespace {

TEST(BlockPool, TakesInOrderAndTheLastFreedFirst) {
  BlockPool pool(3);
  EXPECT_EQ(pool.n_blocks(), 3);
  EXPECT_EQ(pool.take(), BlockId{0});
  EXPECT_EQ(pool.take(), BlockId{1});
  EXPECT_EQ(pool.n_free(), 1);
  EXPECT_EQ(pool.drop_holder(BlockId{0}), 0);
  pool.give_back(BlockId{0});
  EXPECT_EQ(pool.n_free(), 2);
  EXPECT_EQ(pool.take(), BlockId{0});
  EXPECT_EQ(pool.take(), BlockId{2});
  EXPECT_EQ(pool.n_free(), 0);
}

TEST(BlockPool, CountsHolders) {
  BlockPool pool(1);
  const BlockId block = pool.take();
  EXPECT_EQ(pool.n_holders(block), 1);
  EXPECT_EQ(pool.add_holder(block), 2);
  EXPECT_EQ(pool.drop_holder(block), 1);
  EXPECT_EQ(pool.n_free(), 0);
  EXPECT_EQ(pool.drop_holder(block), 0);
  EXPECT_EQ(pool.n_free(), 0) << "without holders, but nobody gave it back";
}

TEST(BlockPoolDeathTest, MisuseAborts) {
  BlockPool pool(1);
  EXPECT_DEATH((void)pool.drop_holder(BlockId{0}), "no holder");
  EXPECT_DEATH((void)pool.n_holders(BlockId{1}), "block 1 of 1");
  EXPECT_DEATH((void)pool.n_holders(BlockId{-1}), "block -1 of 1");
  EXPECT_DEATH(pool.give_back(BlockId{0}), "check failed");
  const BlockId block = pool.take();
  EXPECT_DEATH((void)pool.take(), "check failed");
  EXPECT_DEATH(pool.give_back(block), "has 1 holders");
}

}  // namespace
}  // namespace baton::kv
