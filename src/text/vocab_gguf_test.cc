#include "text/vocab_gguf.h"

#include <gtest/gtest.h>

#include "testing/corrupt.h"
#include "testing/gguf_writer.h"
#include "text/test_vocab.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

using testing::GgufWriter;

std::vector<int32_t> numbers(const std::vector<TokenType>& types) {
  std::vector<int32_t> out;
  for (const TokenType type : types) out.push_back(static_cast<int32_t>(type));
  return out;
}

GgufWriter byte_bpe_file() {
  const VocabData data = test_byte_bpe();
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", "gpt2")
      .add("tokenizer.ggml.pre", "smollm")
      .add("tokenizer.ggml.tokens", std::span<const std::string>(data.tokens))
      .add("tokenizer.ggml.token_type", std::span<const int32_t>(numbers(data.types)))
      .add("tokenizer.ggml.merges", std::span<const std::string>(data.merges))
      .add("tokenizer.ggml.bos_token_id", uint32_t{0})
      .add("tokenizer.ggml.eos_token_id", uint32_t{2})
      .add("tokenizer.ggml.eot_token_id", uint32_t{1})
      .add("tokenizer.ggml.add_bos_token", true)
      .add("tokenizer.ggml.add_space_prefix", true);
  return writer;
}

GgufWriter spm_file() {
  const VocabData data = test_spm();
  GgufWriter writer;
  writer.add("general.name", "Tiny Phi-3 of ours")
      .add("tokenizer.ggml.model", "llama")
      .add("tokenizer.ggml.tokens", std::span<const std::string>(data.tokens))
      .add("tokenizer.ggml.token_type", std::span<const int32_t>(numbers(data.types)))
      .add("tokenizer.ggml.scores", std::span<const float>(data.scores))
      .add("tokenizer.ggml.add_space_prefix", false);
  return writer;
}

Result<VocabData> read(const GgufWriter& writer) {
  const auto bytes = writer.bytes();
  const auto file = format::GgufFile::parse(bytes, "test.gguf");
  if (!file) return tl::unexpected(file.error());
  return vocab_from_gguf(file->metadata());
}

TEST(VocabGguf, ReadsAByteLevelVocabulary) {
  const auto data = read(byte_bpe_file());
  ASSERT_TRUE(data) << data.error().message;
  const VocabData expected = test_byte_bpe();
  EXPECT_EQ(data->model, VocabModel::kByteBpe);
  EXPECT_EQ(data->pre, "smollm");
  EXPECT_EQ(data->tokens, expected.tokens);
  EXPECT_EQ(data->types, expected.types);
  EXPECT_EQ(data->merges, expected.merges);
  EXPECT_EQ(data->bos_id, 0);
  EXPECT_EQ(data->eos_id, 2);
  EXPECT_EQ(data->end_ids, std::vector<TokenId>{1});
  EXPECT_EQ(data->add_bos, true);
  EXPECT_EQ(data->add_space_prefix, false);  // the key doesn't concern this model
  const auto tokenizer = Tokenizer::create(*data);
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ((*tokenizer)->description(), "byte-level BPE, pre-tokeniser smollm");
}

TEST(VocabGguf, ReadsASentencePieceVocabularyWithItsDefaults) {
  const auto data = read(spm_file());
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->model, VocabModel::kSpm);
  EXPECT_EQ(data->scores, test_spm().scores);
  EXPECT_EQ(data->bos_id, 1);
  EXPECT_EQ(data->eos_id, 2);
  EXPECT_EQ(data->unk_id, 0);
  EXPECT_FALSE(data->add_bos);
  EXPECT_EQ(data->add_space_prefix, false);
  // Phi-3 by name: "</s>" strips, "<s>" and "<unk>" don't.
  EXPECT_EQ(data->strips_right, std::vector<TokenId>{2});
}

TEST(VocabGguf, NamesTheKeyThatIsWrong) {
  const std::pair<const char*, GgufWriter> cases[] = {
      {"tokenizer.ggml.model", byte_bpe_file().remove("tokenizer.ggml.model")},
      {"'bert'",
       byte_bpe_file().remove("tokenizer.ggml.model").add("tokenizer.ggml.model", "bert")},
      {"tokenizer.ggml.model is '\\x1b[31m'",
       byte_bpe_file().remove("tokenizer.ggml.model").add("tokenizer.ggml.model", "\x1B[31m")},
      {"tokenizer.ggml.tokens", byte_bpe_file().remove("tokenizer.ggml.tokens")},
      {"tokenizer.ggml.merges", byte_bpe_file().remove("tokenizer.ggml.merges")},
      {"tokenizer.ggml.scores", spm_file().remove("tokenizer.ggml.scores")},
      {"tokenizer.ggml.bos_token_id", byte_bpe_file()
                                          .remove("tokenizer.ggml.bos_token_id")
                                          .add("tokenizer.ggml.bos_token_id", "0")},
      {"tokenizer.ggml.add_bos_token", byte_bpe_file()
                                           .remove("tokenizer.ggml.add_bos_token")
                                           .add("tokenizer.ggml.add_bos_token", 1)},
      {"tokenizer.ggml.token_type",
       byte_bpe_file().remove("tokenizer.ggml.token_type").add("tokenizer.ggml.token_type", 3)},
  };
  for (const auto& [name, writer] : cases) {
    const auto data = read(writer);
    ASSERT_FALSE(data) << name;
    EXPECT_NE(data.error().message.find(name), std::string::npos) << data.error().message;
  }
}

TEST(VocabGguf, DamagedFilesGiveErrorsOrTokenizersThatWork) {
  int n_made = 0;
  for (const GgufWriter& writer : {byte_bpe_file(), spm_file()}) {
    const auto bytes = writer.bytes();
    for (const auto& damaged : testing::corruptions(bytes, bytes.size(), 400, 9)) {
      const auto file = format::GgufFile::parse(damaged.bytes, "damaged.gguf");
      if (!file) continue;
      auto data = vocab_from_gguf(file->metadata());
      if (!data) continue;
      const auto tokenizer = Tokenizer::create(std::move(*data));
      if (!tokenizer) continue;
      ++n_made;
      const auto ids = (*tokenizer)->encode("hello <s>wörld <|im_end|>\n\n日本 \xFF");
      for (const TokenId id : ids) EXPECT_TRUE((*tokenizer)->contains(id)) << damaged.what;
      (void)(*tokenizer)->decode(ids);
    }
  }
  EXPECT_GT(n_made, 100);
}

}  // namespace
}  // namespace baton::text
