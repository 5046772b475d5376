#include "kv/layout.h"

#include <gtest/gtest.h>

namespace baton::kv {
namespace {

KvLayout example() {
  return {.n_layers = 3, .n_blocks = 5, .n_kv_heads = 2, .head_dim = 8, .block_tokens = 4};
}

TEST(KvLayout, SizesAndOffsets) {
  KvLayout layout = example();
  EXPECT_EQ(layout.block_bytes(), 2U * 2 * 4 * 8 * 2);
  EXPECT_EQ(layout.layer_bytes(), 5 * layout.block_bytes());
  EXPECT_EQ(layout.total_bytes(), 15 * layout.block_bytes());
  EXPECT_EQ(layout.offset(0, BlockId{0}), 0U);
  EXPECT_EQ(layout.offset(0, BlockId{4}), 4 * layout.block_bytes());
  EXPECT_EQ(layout.offset(2, BlockId{1}), 11 * layout.block_bytes());
  layout.type = TensorType::kF32;
  EXPECT_EQ(layout.block_bytes(), 2U * 2 * 4 * 8 * 4);
}

TEST(KvLayout, OffsetsOfABigPoolDoNotOverflow) {
  const KvLayout layout{.n_layers = 80, .n_blocks = 1 << 20, .n_kv_heads = 8, .head_dim = 128};
  EXPECT_EQ(layout.block_bytes(), 65536U);
  EXPECT_EQ(layout.offset(79, BlockId{(1 << 20) - 1}) + layout.block_bytes(), layout.total_bytes());
}

TEST(LayoutHash, EveryFieldButTheNumberOfBlocksCounts) {
  const uint64_t hash = layout_hash(example(), "model");
  EXPECT_EQ(layout_hash(example(), "model"), hash);
  EXPECT_NE(layout_hash(example(), "other"), hash);
  EXPECT_NE(layout_hash(example(), ""), hash);

  const auto changed = [](auto change) {
    KvLayout layout = example();
    change(layout);
    return layout_hash(layout, "model");
  };
  EXPECT_NE(changed([](KvLayout& l) { l.n_layers = 4; }), hash);
  EXPECT_NE(changed([](KvLayout& l) { l.n_kv_heads = 4; }), hash);
  EXPECT_NE(changed([](KvLayout& l) { l.head_dim = 16; }), hash);
  EXPECT_NE(changed([](KvLayout& l) { l.block_tokens = 16; }), hash);
  EXPECT_NE(changed([](KvLayout& l) { l.type = TensorType::kF32; }), hash);
  EXPECT_NE(changed([](KvLayout& l) { std::swap(l.n_layers, l.n_kv_heads); }), hash);
  EXPECT_EQ(changed([](KvLayout& l) { l.n_blocks = 1000; }), hash);
}

// Engines of different builds compare these: a change here needs a new kLayoutVersion.
TEST(LayoutHash, IsFixedForever) {
  EXPECT_EQ(layout_hash(example(), "model"), 4587678392403797807U);
}

}  // namespace
}  // namespace baton::kv
