// Attention: every kernel set and class against the reference, and the same bits in every batch.
#include "linalg/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "linalg/test_sets.h"

namespace baton::linalg {
namespace {

struct Shape {
  int n_heads;
  int n_kv_heads;
  int head_dim;
  int window;
  TensorType type;
};

/// Sequences with q, k and v at every position, and a KV layer with shuffled blocks full of NaN.
class World {
 public:
  World(const Shape& shape, const std::vector<int>& lengths, uint32_t seed)
      : shape_(shape), lengths_(lengths), random_(seed) {
    int n_blocks = 1;
    for (const int length : lengths) n_blocks += (length + 15) / 16;
    std::vector<BlockId> ids;
    for (int i = 0; i < n_blocks; ++i) ids.push_back({i});
    std::shuffle(ids.begin(), ids.end(), random_);
    layer_.type = shape.type;
    layer_.n_kv_heads = shape.n_kv_heads;
    layer_.head_dim = shape.head_dim;
    const size_t block_values = 2 * 16 * size_t(kv_width());
    layer_.block_stride_bytes = block_values * sizeof(float) + 64;
    memory_.assign(layer_.block_stride_bytes * size_t(n_blocks), std::byte{0xff});
    layer_.data = memory_.data();
    std::normal_distribution<float> normal;
    for (const int length : lengths) {
      const auto n = size_t((length + 15) / 16);
      blocks_.emplace_back(ids.end() - std::ptrdiff_t(n), ids.end());
      ids.resize(ids.size() - n);
      auto& x = inputs_.emplace_back(size_t(length) * size_t(row_width()));
      for (float& value : x) value = normal(random_);
    }
  }

  [[nodiscard]] int q_width() const { return shape_.n_heads * shape_.head_dim; }
  [[nodiscard]] int kv_width() const { return shape_.n_kv_heads * shape_.head_dim; }
  /// q|k|v of one position.
  [[nodiscard]] int row_width() const { return q_width() + 2 * kv_width(); }

  /// Rows of the batch: positions [begin, begin + n) of sequence s.
  struct Part {
    size_t s;
    int begin;
    int n;
  };

  /// Stores and attends one batch; the outputs land in result(s).
  void run(Context& context, KernelClass kernel_class, const std::vector<Part>& batch) {
    results_.resize(inputs_.size());
    int64_t n_rows = 3;  // rows before the batch's own, to be left alone
    std::vector<SeqRows> seqs;
    for (const Part& part : batch) {
      seqs.push_back({blocks_[part.s], part.begin, part.n, n_rows});
      n_rows += part.n;
    }
    std::vector<float> x(size_t(n_rows) * size_t(row_width()), 1e30F);
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto width = row_width();
      std::copy_n(inputs_[batch[i].s].data() + batch[i].begin * width, batch[i].n * width,
                  x.data() + seqs[i].first_row * width);
    }
    std::vector<float> out(size_t(n_rows) * size_t(q_width()), 7.0F);
    store_kv(context, layer_, seqs, {x.data() + q_width(), row_width()},
             {x.data() + q_width() + kv_width(), row_width()});
    const AttentionShape shape = {shape_.n_heads, 1 / std::sqrt(float(shape_.head_dim)),
                                  shape_.window};
    attention(context, kernel_class, layer_, shape, seqs, {x.data(), row_width()}, out.data());
    for (int i = 0; i < 3 * q_width(); ++i) ASSERT_EQ(out[size_t(i)], 7.0F);
    for (size_t i = 0; i < batch.size(); ++i) {
      auto& result = results_[batch[i].s];
      result.resize(size_t(lengths_[batch[i].s]) * size_t(q_width()));
      std::copy_n(out.data() + seqs[i].first_row * q_width(), batch[i].n * q_width(),
                  result.data() + batch[i].begin * q_width());
    }
  }

  [[nodiscard]] const std::vector<float>& result(size_t s) const { return results_[s]; }
  /// All of every sequence at once.
  [[nodiscard]] std::vector<Part> everything() const {
    std::vector<Part> batch;
    for (size_t s = 0; s < lengths_.size(); ++s) batch.push_back({s, 0, lengths_[s]});
    return batch;
  }

 private:
  Shape shape_;
  std::vector<int> lengths_;
  std::mt19937 random_;
  KvLayer layer_;
  std::vector<std::byte> memory_;
  std::vector<std::vector<BlockId>> blocks_;
  std::vector<std::vector<float>> inputs_;
  std::vector<std::vector<float>> results_;
};

const std::vector<Shape> kShapes = {
    {3, 3, 64, 0, TensorType::kBF16},  {9, 3, 64, 0, TensorType::kBF16},
    {4, 1, 256, 0, TensorType::kBF16}, {4, 1, 256, 100, TensorType::kBF16},
    {2, 1, 32, 17, TensorType::kF32},  {8, 2, 40, 0, TensorType::kF32},
    {1, 1, 8, 1, TensorType::kBF16},   {14, 2, 72, 64, TensorType::kBF16},
};

// Groups of several rows, a window inside a tile, a padded head_dim, both KV types.
const std::vector<Shape> kChunkedShapes = {
    {3, 1, 64, 0, TensorType::kBF16},
    {4, 2, 40, 33, TensorType::kF32},
};

class AttentionTest : public ::testing::TestWithParam<KernelSet> {
 protected:
  Context context(int n_threads = 2) {
    pools_.push_back(std::make_unique<ThreadPool>(ThreadPoolOptions{n_threads, {}}));
    return {GetParam(), *pools_.back(), workspace_};
  }
  Workspace workspace_;
  std::vector<std::unique_ptr<ThreadPool>> pools_;
};

TEST_P(AttentionTest, EqualsTheReferenceInBothClasses) {
  const std::vector<int> lengths = {1, 16, 63, 65, 200};
  for (const Shape& shape : kShapes) {
    World world(shape, lengths, 1);
    Context mine = context();
    Context yardstick = mine;
    yardstick.kernels = KernelSet::kReference;
    world.run(yardstick, KernelClass::kPrefill, world.everything());
    std::vector<std::vector<float>> expected;
    for (size_t s = 0; s < lengths.size(); ++s) expected.push_back(world.result(s));
    for (const auto kernel_class : {KernelClass::kPrefill, KernelClass::kDecode}) {
      world.run(mine, kernel_class, world.everything());
      for (size_t s = 0; s < lengths.size(); ++s) {
        double worst = 0;
        for (size_t i = 0; i < expected[s].size(); ++i) {
          worst = std::max(worst, std::abs(double{world.result(s)[i]} - expected[s][i]));
          ASSERT_FALSE(std::isnan(world.result(s)[i]));
        }
        EXPECT_LT(worst, 5e-6) << shape.head_dim << " window " << shape.window << " seq " << s;
      }
    }
  }
}

TEST_P(AttentionTest, SameBitsInEveryChunkingBatchAndNumberOfThreads) {
  const std::vector<int> lengths = {100, 30, 5};
  for (const Shape& shape : kChunkedShapes) {
    for (const auto kernel_class : {KernelClass::kPrefill, KernelClass::kDecode}) {
      World world(shape, lengths, 2);
      Context two = context(2);
      Context one = context(1);
      world.run(two, kernel_class, world.everything());
      const std::vector<float> expected = world.result(0);
      for (const int chunk : {1, 3, 16, 17, 64, 100}) {
        for (int begin = 0, i = 0; begin < lengths[0]; begin += chunk, ++i) {
          std::vector<World::Part> batch = {{0, begin, std::min(chunk, lengths[0] - begin)}};
          // The others come and go, before and after it.
          if (i % 3 == 1) batch.push_back({1, 10, 20});
          if (i % 3 == 2) batch.insert(batch.begin(), {2, 0, 5});
          world.run(i % 2 == 0 ? one : two, kernel_class, batch);
        }
        ASSERT_EQ(0, std::memcmp(world.result(0).data(), expected.data(),
                                 expected.size() * sizeof(float)))
            << "chunks of " << chunk << ", head_dim " << shape.head_dim;
      }
    }
  }
}

TEST_P(AttentionTest, SameBitsAcrossPartsOfALongSequence) {
  const Shape shape = {3, 1, 16, 700, TensorType::kBF16};
  World world(shape, {1300}, 3);
  Context two = context(2);
  Context one = context(1);
  world.run(two, KernelClass::kDecode, world.everything());
  const std::vector<float> expected = world.result(0);
  world.run(one, KernelClass::kDecode, {{0, 0, 1100}});
  for (int begin = 1100; begin < 1300; begin += 100) {
    world.run(one, KernelClass::kDecode, {{0, begin, 1}});
    world.run(two, KernelClass::kDecode, {{0, begin + 1, 99}});
  }
  EXPECT_EQ(0,
            std::memcmp(world.result(0).data(), expected.data(), expected.size() * sizeof(float)));
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  const Shape shape = {1, 1, 64, 0, TensorType::kF32};
  Context mine = context();
  std::vector<std::byte> memory(2 * 16 * 64 * sizeof(float));
  const KvLayer layer = {memory.data(), memory.size(), TensorType::kF32, 1, 64, 16};
  std::vector<float> k(2 * 64, 40.0F);
  std::fill(k.begin() + 64, k.end(), -40.0F);
  std::vector<float> v(2 * 64, 1.0F);
  std::fill(v.begin() + 64, v.end(), 2.0F);
  const std::vector<BlockId> blocks = {{0}};
  const std::vector<SeqRows> seqs = {{blocks, 0, 2, 0}};
  store_kv(mine, layer, seqs, {k.data(), 64}, {v.data(), 64});
  std::vector<float> out(2 * 64);
  // Scores ±102,400: the first position takes all the weight.
  attention(mine, KernelClass::kPrefill, layer, {shape.n_heads, 1.0F, 0}, seqs, {k.data(), 64},
            out.data());
  EXPECT_EQ(out[0], 1.0F);
  EXPECT_EQ(out[64], 2.0F);  // q = k of the second position: its own score is the large one
}

INSTANTIATE_TEST_SUITE_P(Sets, AttentionTest, ::testing::ValuesIn(runnable_sets()), SetName());

}  // namespace
}  // namespace baton::linalg
