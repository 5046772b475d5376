#include "testing/synthetic_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "model/loaded_model.h"
#include "text/tokenizer.h"
#include "text/vocab_gguf.h"

namespace baton::testing {
namespace {

using linalg::KernelClass;
using model::LoadedModel;

const SyntheticShape& tiny() { return *find_synthetic_shape("tiny"); }

/// A path of this process that is gone at the end.
class TempPath {
 public:
  TempPath() : path_(fmt::format("{}synthetic_{}.gguf", ::testing::TempDir(), ::getpid())) {}
  ~TempPath() { std::filesystem::remove(path_); }
  TempPath(const TempPath&) = delete;
  TempPath& operator=(const TempPath&) = delete;
  [[nodiscard]] const std::string& string() const { return path_; }

 private:
  std::string path_;
};

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments moments(std::span<const float> values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const float value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / n)};
}

class Synthetic : public ::testing::TestWithParam<TensorType> {};

TEST_P(Synthetic, IsWrittenAsItIsHeld) {
  const TempPath path;
  const GgufWriter writer = synthetic_model(tiny(), GetParam(), 1);
  ASSERT_TRUE(writer.write(path.string()));
  std::ifstream file(path.string(), std::ios::binary);
  const std::string written{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::byte> held = writer.bytes();
  ASSERT_EQ(written.size(), held.size());
  EXPECT_EQ(std::memcmp(written.data(), held.data(), held.size()), 0);
  EXPECT_EQ(synthetic_model(tiny(), GetParam(), 1).bytes(), held);
  EXPECT_NE(synthetic_model(tiny(), GetParam(), 2).bytes(), held);
}

TEST_P(Synthetic, MatricesHaveTheirTypeAndScale) {
  const TempPath path;
  ASSERT_TRUE(synthetic_model(tiny(), GetParam(), 1).write(path.string()));
  const auto file = format::GgufFile::open(path.string());
  ASSERT_TRUE(file) << file.error().message;
  int n_matrices = 0;
  for (const format::TensorView& tensor : file->tensors()) {
    if (tensor.shape.size() != 2) continue;
    SCOPED_TRACE(tensor.name);
    ASSERT_EQ(tensor.type, GetParam());
    ++n_matrices;
    const int64_t n = tensor.shape[0] * tensor.shape[1];
    std::vector<float> values(static_cast<size_t>(n));
    linalg::dequantize(*tensor.type, tensor.data.data(), n, values.data());
    const Moments found = moments(values);
    const bool is_vocab = tensor.shape[0] == tiny().n_vocab && tensor.name.find("blk") != 0;
    const double wanted = (is_vocab ? 2.0 : 1.0) / std::sqrt(double(tensor.shape[1]));
    EXPECT_NEAR(found.mean, 0.0, 0.1 * wanted);
    EXPECT_NEAR(found.deviation, wanted, 0.1 * wanted);
  }
  EXPECT_EQ(n_matrices, 2 + 7 * tiny().n_layers);
}

TEST_P(Synthetic, LogitsAreFiniteAndTheSameTwice) {
  const TempPath path;
  ASSERT_TRUE(synthetic_model(tiny(), GetParam(), 1).write(path.string()));
  std::vector<TokenId> ids(100);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>((i * 37 + 5) % 512);
  const linalg::KernelSet kernels = model::runnable_kernels().back();
  for (const KernelClass kernel_class : {KernelClass::kPrefill, KernelClass::kDecode}) {
    std::vector<std::vector<float>> runs;
    for (const int n_threads : {1, 2}) {
      const auto loaded = LoadedModel::load(
          path.string(),
          {.kernels = kernels, .n_threads = n_threads, .kv_type = TensorType::kBF16});
      ASSERT_TRUE(loaded) << loaded.error().message;
      runs.push_back((*loaded)->all_logits(ids, kernel_class, 64));
    }
    ASSERT_EQ(runs[0].size(), ids.size() * 512);
    for (const float logit : runs[0]) ASSERT_TRUE(std::isfinite(logit));
    const double deviation = moments(runs[0]).deviation;
    EXPECT_GT(deviation, 1.0);
    EXPECT_LT(deviation, 4.0);
    EXPECT_EQ(std::memcmp(runs[0].data(), runs[1].data(), runs[0].size() * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Synthetic,
                         ::testing::Values(TensorType::kQ4_0, TensorType::kQ4_K, TensorType::kQ8_0),
                         [](const auto& test) {
                           return std::string(baton::info(test.param).name);
                         });

TEST(SyntheticVocabulary, GivesBackWhatItSays) {
  const TempPath path;
  ASSERT_TRUE(synthetic_model(tiny(), TensorType::kQ8_0, 1).write(path.string()));
  const auto file = format::GgufFile::open(path.string());
  ASSERT_TRUE(file) << file.error().message;
  auto data = text::vocab_from_gguf(file->metadata());
  ASSERT_TRUE(data) << data.error().message;
  const auto tokenizer = text::Tokenizer::create(std::move(*data));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->n_tokens(), 512);
  EXPECT_EQ((*tokenizer)->end_ids(), (std::vector<TokenId>{0, 2}));
  const std::vector<TokenId> words = {kLeastVocab, 511, 300, kLeastVocab};
  EXPECT_EQ((*tokenizer)->encode((*tokenizer)->decode(words)), words);
  const std::string text = "Füße, 1 \n";
  const std::vector<TokenId> ids = (*tokenizer)->encode(text);
  EXPECT_EQ(ids.size(), text.size());
  EXPECT_EQ((*tokenizer)->decode(ids), text);
}

// What is too large for a test to write is a model all the same.
TEST(SyntheticShapes, AreThoseOfPublishedModels) {
  const auto n_weights = [](const SyntheticShape& s) {
    const int64_t attention = int64_t{2} * (s.n_heads + s.n_kv_heads) * s.head_dim * s.hidden;
    const int64_t mlp = int64_t{3} * s.ffn * s.hidden;
    const int64_t vocab = int64_t{s.n_vocab} * s.hidden * (s.tied_head ? 1 : 2);
    return s.n_layers * (attention + mlp) + vocab;
  };
  EXPECT_NEAR(double(n_weights(*find_synthetic_shape("1.5b"))), 1.54e9, 0.01e9);
  EXPECT_NEAR(double(n_weights(*find_synthetic_shape("7b"))), 7.24e9, 0.01e9);
  for (const SyntheticShape& shape : synthetic_shapes()) {
    EXPECT_EQ(shape.hidden % 256, 0);
    EXPECT_EQ(shape.ffn % 256, 0);
    EXPECT_GE(shape.n_vocab, kLeastVocab);
  }
  EXPECT_EQ(find_synthetic_shape("70b"), nullptr);
}

TEST(GgufWriterFill, SaysWhyItCannotWrite) {
  const Status written = synthetic_model(tiny(), TensorType::kQ4_0, 1).write("/dev/full");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
  EXPECT_NE(written.error().message.find("/dev/full"), std::string::npos);
}

}  // namespace
}  // namespace baton::testing
