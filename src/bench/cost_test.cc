#include "bench/cost.h"

#include <gtest/gtest.h>

namespace baton::bench {
namespace {

/// Two layers: hidden 8, 2 heads and 1 KV head of 4, ffn 16, 10 words.
model::ModelSpec tiny(int window_of_last = 0) {
  model::ModelSpec spec;
  spec.n_vocab = 10;
  spec.hidden = 8;
  spec.n_heads = 2;
  spec.n_kv_heads = 1;
  spec.head_dim = 4;
  spec.ffn = 16;
  spec.layers = {{0, 0}, {window_of_last, 0}};
  return spec;
}

constexpr WeightBytes kWeights{
    .prefill_qkv = 1000, .prefill_rest = 4000, .decode_layers = 700, .head = 50};
// Values of one layer: qkv 8 x 16, output 8 x 8, gate and up 8 x 32, down 16 x 8.
constexpr double kQkv = 128;
constexpr double kRest = 64 + 256 + 128;

TEST(Cost, ADecodeStep) {
  const CostModel costs(tiny(), kWeights, 2);
  const Cost cost = costs.decode_step(3, 9);
  // Each stream sees 10 positions in both layers: 4 * 8 operations each.
  EXPECT_EQ(cost.flops, 3 * (2 * (2 * (kQkv + kRest) + 80) + 2 * 10 * 32));
  // K and V of 4 values, 2 bytes each: 10 read and 1 written.
  EXPECT_EQ(cost.bytes, 750 + 3 * 2 * 16 * (10 + 1));
}

TEST(Cost, AWindowEndsWhatIsSeen) {
  const CostModel all(tiny(), kWeights, 2);
  const CostModel windowed(tiny(4), kWeights, 2);
  // In one layer 4 positions are seen instead of 10.
  EXPECT_EQ(all.decode_step(1, 9).flops - windowed.decode_step(1, 9).flops, 6 * 32);
  EXPECT_EQ(all.decode_step(1, 9).bytes - windowed.decode_step(1, 9).bytes, 6 * 16);
  EXPECT_EQ(all.decode_step(1, 3).flops, windowed.decode_step(1, 3).flops);
}

TEST(Cost, APrompt) {
  const CostModel costs(tiny(), kWeights, 2);
  const Cost chunk = costs.prefill_chunk(2, 5);
  // Positions 2, 3, 4 see 3 + 4 + 5, in the first layer only; of the last one only qkv is computed.
  EXPECT_EQ(chunk.flops, 2 * 3 * (2 * kQkv + kRest) + 12 * 32);
  EXPECT_EQ(chunk.bytes, 1000 + 4000.0 / 2 + 16 * (2 * 3 + 5));
  const Cost tail = costs.tail(5, 7);
  // 6 + 7 are seen in the first layer; in the last, by the last token, 7.
  EXPECT_EQ(tail.flops, 2 * (2 * (2 * kQkv + kRest) + kRest + 80) + (13 + 7) * 32);
  EXPECT_EQ(tail.bytes, 750 + 16 * (2 * 2 + 7 + 7));
}

/// However a prompt is cut, the operations of its layers are the same.
TEST(Cost, ChunksAddUp) {
  for (const int window : {0, 3, 100}) {
    const CostModel costs(tiny(window), kWeights, 2);
    Cost cut = costs.prefill_chunk(0, 16);
    cut += costs.prefill_chunk(16, 32);
    EXPECT_DOUBLE_EQ(cut.flops, costs.prefill_chunk(0, 32).flops);
    EXPECT_GT(cut.bytes, costs.prefill_chunk(0, 32).bytes);
  }
}

TEST(Cost, WeightsByWhatReadsThem) {
  using linalg::KernelClass;
  const model::GemmInfo gemms[] = {{"qkv", KernelClass::kPrefill, "", 2, 1},
                                   {"down", KernelClass::kPrefill, "", 2, 2},
                                   {"qkv", KernelClass::kDecode, "", 2, 4},
                                   {"down", KernelClass::kDecode, "", 2, 8},
                                   {"head", KernelClass::kDecode, "", 1, 16}};
  const WeightBytes bytes = weight_bytes(gemms);
  EXPECT_EQ(bytes.prefill_qkv, 1);
  EXPECT_EQ(bytes.prefill_rest, 2);
  EXPECT_EQ(bytes.decode_layers, 12);
  EXPECT_EQ(bytes.head, 16);
}

}  // namespace
}  // namespace baton::bench
