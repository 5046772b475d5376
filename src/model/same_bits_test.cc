// "Same bits" (docs/architecture.md): a position's logits depend on its sequence and its class
// alone, not on the batch, the chunking, the number of threads or where its KV lies. Compared bit
// by bit.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <tuple>

#include "model/golden.h"
#include "model/loaded_model.h"

namespace baton::model {
namespace {

using linalg::ActivationType;
using linalg::KernelClass;
using linalg::KernelSet;

constexpr int kPromptTokens = 150;
constexpr int kPrefilled = 144;  // whole blocks in the prefill class, the rest in the decode class

std::vector<TokenId> random_ids(int n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> ids(static_cast<size_t>(n));
  for (TokenId& id : ids) id = static_cast<TokenId>(4 + random() % 500);
  return ids;
}

/// A kernel set, and what its prefill class multiplies with.
struct Arithmetic {
  KernelSet kernels;
  ActivationType prefill;
};

/// All that this CPU can run.
std::vector<Arithmetic> runnable_arithmetics() {
  std::vector<Arithmetic> out;
  for (const KernelSet kernels : runnable_kernels()) {
    out.push_back({kernels, ActivationType::kInt16});
    if (has_int8_activations(kernels)) out.push_back({kernels, ActivationType::kInt8});
  }
  return out;
}

using Param = std::tuple<std::string, Arithmetic>;

Result<std::unique_ptr<LoadedModel>> load(const Param& param, int n_threads) {
  const auto& [name, arithmetic] = param;
  LoadOptions options{.kernels = arithmetic.kernels, .n_threads = n_threads, .kv_tokens = 8192};
  options.transformer.prefill_activations = arithmetic.prefill;
  options.kv_type =
      arithmetic.kernels == KernelSet::kReference ? TensorType::kF32 : TensorType::kBF16;
  return LoadedModel::load(golden_dir() + "/tiny/" + name, options);
}

class SameBits : public ::testing::TestWithParam<Param> {
 protected:
  std::unique_ptr<LoadedModel> load(int n_threads) {
    auto model = model::load(GetParam(), n_threads);
    EXPECT_TRUE(model) << model.error().message;
    return model ? std::move(*model) : nullptr;
  }

  /// All logits of a prompt as an engine would compute them: prefill class, then decode class.
  static std::vector<float> serve(LoadedModel& model, const std::vector<TokenId>& ids,
                                  int prefill_chunk, int decode_chunk) {
    std::vector<float> out;
    const auto table = model.new_table(kPromptTokens);
    const auto sink = [&](int, std::span<const float> row) {
      out.insert(out.end(), row.begin(), row.end());
    };
    model.run({.ids = ids,
               .end = kPrefilled,
               .kernel_class = KernelClass::kPrefill,
               .chunk = prefill_chunk},
              table, sink);
    model.run({.ids = ids,
               .begin = kPrefilled,
               .end = kPromptTokens,
               .kernel_class = KernelClass::kDecode,
               .chunk = decode_chunk},
              table, sink);
    return out;
  }

  static void expect_same(const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    if (want.empty()) return;  // a slice that wants no logits
    EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0);
  }
};

TEST_P(SameBits, InAnyChunkingAndWithAnyThreads) {
  const std::vector<TokenId> ids = random_ids(kPromptTokens, 1);
  std::vector<float> want;
  for (const int n_threads : {1, 2}) {
    const auto model = load(n_threads);
    ASSERT_NE(model, nullptr);
    if (want.empty()) want = serve(*model, ids, kPromptTokens, kPromptTokens);
    for (const auto& [prefill_chunk, decode_chunk] :
         {std::pair(kPromptTokens, kPromptTokens), std::pair(16, 1), std::pair(7, 3),
          std::pair(100, 5)}) {
      SCOPED_TRACE(
          fmt::format("{} threads, chunks {} and {}", n_threads, prefill_chunk, decode_chunk));
      expect_same(serve(*model, ids, prefill_chunk, decode_chunk), want);
    }
  }
}

/// A sequence of the batch test: its ids, how far it is, and the logits seen so far.
struct Sequence {
  std::vector<TokenId> ids;
  std::vector<BlockId> table;
  int done = 0;
  std::vector<float> logits;
};

/// One mixed step: each sequence that is not done gets a slice of random length in its present
/// class.
void mixed_step(LoadedModel& model, std::vector<Sequence>& sequences, std::mt19937_64& random) {
  std::vector<SeqSlice> slices;
  std::vector<Sequence*> owners;
  for (Sequence& sequence : sequences) {
    const int n = static_cast<int>(sequence.ids.size());
    if (sequence.done == n || random() % 4 == 0) continue;
    const int end_of_class = sequence.done < n / 16 * 16 ? n / 16 * 16 : n;
    const int n_rows = std::min(1 + static_cast<int>(random() % 40), end_of_class - sequence.done);
    const auto kernel_class =
        sequence.done < n / 16 * 16 ? KernelClass::kPrefill : KernelClass::kDecode;
    slices.push_back({sequence.table, sequence.done,
                      std::span(sequence.ids).subspan(size_t(sequence.done), size_t(n_rows)),
                      kernel_class, n_rows});
    sequence.done += n_rows;
    owners.push_back(&sequence);
  }
  size_t n_rows = 0;
  for (const SeqSlice& slice : slices) n_rows += slice.tokens.size();
  std::vector<float> logits(n_rows * size_t(model.n_vocab()));
  model.model().forward(slices, logits.data());
  const float* from = logits.data();
  for (size_t i = 0; i < slices.size(); ++i) {
    const size_t n = slices[i].tokens.size() * size_t(model.n_vocab());
    owners[i]->logits.insert(owners[i]->logits.end(), from, from + n);
    from += n;
  }
}

TEST_P(SameBits, AmongSixtyFourOthers) {
  const std::vector<TokenId> ids = random_ids(kPromptTokens, 1);
  const auto model = load(2);
  ASSERT_NE(model, nullptr);
  const std::vector<float> want = serve(*model, ids, kPromptTokens, kPromptTokens);
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    model->forget_tables();
    std::vector<Sequence> sequences;
    for (int i = 0; i < 65; ++i) {
      const int n = 1 + static_cast<int>(random() % 100);
      sequences.push_back({i == 30 ? ids : random_ids(n, seed * 1000 + uint64_t(i)), {}, 0, {}});
      sequences.back().table = model->new_table(static_cast<int>(sequences.back().ids.size()));
    }
    Sequence& ours = sequences[30];
    while (ours.done < kPromptTokens) mixed_step(*model, sequences, random);
    expect_same(ours.logits, want);
  }
}

TEST_P(SameBits, LogitsOfFewRowsAreThoseOfAll) {
  const std::vector<TokenId> ids = random_ids(kPromptTokens, 1);
  const auto model = load(2);
  ASSERT_NE(model, nullptr);
  for (const KernelClass kernel_class : {KernelClass::kPrefill, KernelClass::kDecode}) {
    const std::vector<float> all = model->all_logits(ids, kernel_class, kPromptTokens);
    std::vector<float> last;
    model->run({.ids = ids,
                .end = kPromptTokens,
                .kernel_class = kernel_class,
                .chunk = 64,
                .first_logits = kPromptTokens - 1},
               model->new_table(kPromptTokens), [&](int, std::span<const float> row) {
                 last.insert(last.end(), row.begin(), row.end());
               });
    expect_same(last, {all.end() - model->n_vocab(), all.end()});
  }
}

// Rows without logits leave the batch before the last layer ends: the others must not notice.
TEST_P(SameBits, InABatchWhereRowsWantNoLogits) {
  const std::vector<TokenId> ids = random_ids(kPromptTokens, 1);
  const auto model = load(2);
  ASSERT_NE(model, nullptr);
  const auto n_vocab = static_cast<size_t>(model->n_vocab());
  constexpr int kRows = 70;
  for (const KernelClass kernel_class : {KernelClass::kPrefill, KernelClass::kDecode}) {
    model->forget_tables();
    const auto tokens = std::span(ids).first(kRows);
    const std::vector<float> all = model->all_logits({ids.begin(), kRows}, kernel_class, kRows);
    std::vector<std::vector<BlockId>> tables;
    std::vector<SeqSlice> slices;
    size_t n_logits = 0;
    for (const int n : {0, 3, kRows, 0, 1}) {
      tables.push_back(model->new_table(kRows));
      slices.push_back({{}, 0, tokens, kernel_class, n});
      n_logits += static_cast<size_t>(n);
    }
    for (size_t i = 0; i < slices.size(); ++i) slices[i].blocks = tables[i];
    std::vector<float> logits(n_logits * n_vocab);
    model->model().forward(slices, logits.data());
    const float* from = logits.data();
    for (const SeqSlice& slice : slices) {
      const size_t n = static_cast<size_t>(slice.n_logits) * n_vocab;
      expect_same({from, from + n}, {all.end() - static_cast<std::ptrdiff_t>(n), all.end()});
      from += n;
    }
  }
}

/// Copies the KV of one class's blocks, layer by layer, as soon as it is there.
class Copier final : public LayerHook {
 public:
  Copier(LoadedModel& model, std::vector<BlockId> blocks)
      : model_(model), blocks_(std::move(blocks)) {}
  void on_layer_begin(int layer, KernelClass) override { EXPECT_EQ(layer, n_begun_++); }
  void on_kv_stored(int layer, KernelClass kernel_class) override {
    EXPECT_EQ(kernel_class, KernelClass::kPrefill);
    EXPECT_EQ(layer, n_begun_ - 1);
    for (const BlockId block : blocks_) {
      const auto kv = model_.kv_block(layer, block);
      copied.insert(copied.end(), kv.begin(), kv.end());
    }
  }
  bool on_layer_end(int layer, KernelClass) override {
    EXPECT_EQ(layer, n_begun_ - 1);
    return true;
  }

  std::vector<std::byte> copied;

 private:
  LoadedModel& model_;
  std::vector<BlockId> blocks_;
  int n_begun_ = 0;
};

// What is sent while later layers are computed is what lies there in the end.
TEST_P(SameBits, KvIsCompleteWhenTheHookIsCalled) {
  const std::vector<TokenId> ids = random_ids(kPromptTokens, 1);
  const auto model = load(2);
  ASSERT_NE(model, nullptr);
  const auto table = model->new_table(kPrefilled);
  Copier copier(*model, table);
  const SeqSlice slice{table, 0, std::span(ids).first(size_t(kPrefilled)), KernelClass::kPrefill,
                       0};
  model->model().forward({&slice, 1}, nullptr, &copier);
  std::vector<std::byte> expected;
  for (int layer = 0; layer < model->model().spec().n_layers(); ++layer) {
    for (const BlockId block : table) {
      const auto kv = model->kv_block(layer, block);
      expected.insert(expected.end(), kv.begin(), kv.end());
    }
  }
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(copier.copied, expected);
}

// Activations of 8 bits are the prefill class's alone, on the weights that the decode class has.
TEST(Int8Prefill, LeavesTheDecodeClassAndSharesItsWeights) {
  const std::vector<TokenId> ids = random_ids(kPromptTokens, 1);
  for (const auto& [kernels, prefill] : runnable_arithmetics()) {
    if (prefill != ActivationType::kInt8) continue;
    SCOPED_TRACE(linalg::name(kernels));
    const auto int16 = load({"quant/Q4_1.gguf", {kernels, ActivationType::kInt16}}, 2).value();
    const auto int8 = load({"quant/Q4_1.gguf", {kernels, ActivationType::kInt8}}, 2).value();
    const auto logits = [&](LoadedModel& model, KernelClass kernel_class) {
      return model.all_logits(ids, kernel_class, kPromptTokens);
    };
    EXPECT_EQ(logits(*int8, KernelClass::kDecode), logits(*int16, KernelClass::kDecode));
    EXPECT_NE(logits(*int8, KernelClass::kPrefill), logits(*int16, KernelClass::kPrefill));
    EXPECT_NE(logits(*int8, KernelClass::kPrefill), logits(*int8, KernelClass::kDecode));
    size_t decode_bytes = 0;
    for (const GemmInfo& gemm : int8->model().gemms()) {
      const bool of_prefill = gemm.kernel_class == KernelClass::kPrefill;
      EXPECT_EQ(gemm.implementation.ends_with("on int8 activations"), of_prefill);
      if (!of_prefill) decode_bytes += gemm.bytes;
    }
    EXPECT_EQ(int8->model().weights_bytes(), decode_bytes);
    EXPECT_NE(int8->model().kv_identity(), int16->model().kv_identity());
  }
}

std::string param_name(const ::testing::TestParamInfo<Param>& info) {
  std::string name = std::get<0>(info.param);
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  const Arithmetic& arithmetic = std::get<1>(info.param);
  name += "_" + std::string(linalg::name(arithmetic.kernels));
  return name + (arithmetic.prefill == ActivationType::kInt8 ? "_int8" : "");
}

INSTANTIATE_TEST_SUITE_P(
    All, SameBits,
    ::testing::Combine(::testing::Values("llama/model-bf16.gguf", "gemma3/model-bf16.gguf",
                                         "quant/Q4_1.gguf", "quant/Q4_K_M.gguf"),
                       ::testing::ValuesIn(runnable_arithmetics())),
    param_name);

}  // namespace
}  // namespace baton::model
