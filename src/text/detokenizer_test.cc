#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/test_vocab.h"

namespace baton::text {
namespace {

std::unique_ptr<const Tokenizer> make(VocabData data) {
  auto tokenizer = Tokenizer::create(std::move(data));
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? std::move(*tokenizer) : nullptr;
}

/// The definition: the bytes of all tokens, made valid.
std::string decode_naively(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                           const DecodeOptions& options) {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!options.skip_special_tokens || !tokenizer.is_special(id))
      bytes += tokenizer.token_bytes(id);
  }
  const bool strip = options.at_start && tokenizer.adds_space_prefix() && bytes.starts_with(' ');
  return to_valid_utf8(strip ? bytes.substr(1) : bytes);
}

TEST(Detokenizer, IncrementsAreValidAndAddUpToTheFullDecode) {
  std::mt19937_64 random(6);
  for (const VocabData& data : {test_byte_bpe(), test_spm(), test_char_bpe()}) {
    const auto tokenizer = make(data);
    const uint64_t n_tokens = static_cast<uint64_t>(tokenizer->n_tokens());
    for (int round = 0; round < 4000; ++round) {
      const DecodeOptions options{.skip_special_tokens = round % 2 == 0, .at_start = round % 4 < 2};
      std::vector<TokenId> ids;
      for (uint64_t n = random() % 30; n > 0; --n) {
        ids.push_back(static_cast<TokenId>(random() % (random() % 2 == 0 ? 260 : n_tokens)));
      }
      Detokenizer detokenizer(*tokenizer, options);
      std::string text;
      for (size_t begin = 0; begin < ids.size();) {
        const size_t n = std::min<size_t>(1 + random() % 3, ids.size() - begin);
        const std::string piece = detokenizer.push(std::span(ids).subspan(begin, n));
        ASSERT_TRUE(is_valid_utf8(piece));
        text += piece;
        begin += n;
      }
      text += detokenizer.flush();
      ASSERT_EQ(text, decode_naively(*tokenizer, ids, options));
      ASSERT_EQ(text, tokenizer->decode(ids, options));
    }
  }
}

TEST(Detokenizer, HoldsBackAnIncompleteCharacterUntilItIsComplete) {
  const auto tokenizer = make(test_spm());
  // Byte token b has id 3 + b.
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.push(3 + 0xF0), "");
  EXPECT_EQ(detokenizer.push(3 + 0x9F), "");
  EXPECT_EQ(detokenizer.push(3 + 0x98), "");
  EXPECT_TRUE(detokenizer.pending());
  EXPECT_EQ(detokenizer.push(3 + 0x80), "😀");
  EXPECT_FALSE(detokenizer.pending());
  EXPECT_EQ(detokenizer.push(3 + 0xE2), "");
  EXPECT_EQ(detokenizer.push(3 + 'x'), "\xEF\xBF\xBDx");  // it never will be
  EXPECT_EQ(detokenizer.push(3 + 0xC3), "");
  EXPECT_EQ(detokenizer.flush(), kReplacement);
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(Detokenizer, TheSpaceInFrontGoesOnlyAtTheStart) {
  const auto tokenizer = make(test_spm());
  const TokenId the = tokenizer->find_token("▁the");
  const std::vector<TokenId> ids = {tokenizer->bos_id(), the, the};
  EXPECT_EQ(tokenizer->decode(ids, {.at_start = true}), "the the");
  EXPECT_EQ(tokenizer->decode(ids), " the the");
  EXPECT_EQ(tokenizer->decode(ids, {.skip_special_tokens = false}), "<s> the the");
}

TEST(Detokenizer, IdsOutsideTheVocabularyGiveNothing) {
  const auto tokenizer = make(test_byte_bpe());
  const std::vector<TokenId> ids = {-1, 4 + 'h', 1'000'000, 4 + 'i', INT32_MIN, INT32_MAX};
  EXPECT_EQ(tokenizer->decode(ids), "hi");
}

}  // namespace
}  // namespace baton::text
