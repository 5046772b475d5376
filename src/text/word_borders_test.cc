#include "text/word_borders.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/test_vocab.h"
#include "text/tokenizer.h"
#include "text/word_encoder.h"

namespace baton::text {
namespace {

WordBorders borders_of(const std::vector<std::string>& symbols) {
  WordBorders borders;
  for (const std::string& symbol : symbols) borders.add(symbol);
  return borders;
}

/// `text` with "|" wherever it may be cut.
std::string cut(const WordBorders& borders, std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (at > 0 && borders.between(text, at)) out += '|';
    out += text[at];
  }
  return out;
}

TEST(WordBorders, PairsThatNoSymbolHas) {
  const WordBorders borders = borders_of({"a", "b", "ab"});
  EXPECT_EQ(cut(borders, "abba"), "ab|b|a");
  EXPECT_EQ(cut(borders, "ababab"), "ab|ab|ab");
}

TEST(WordBorders, PairsThatSymbolsHaveOnlyBesideOthers) {
  const WordBorders borders = borders_of({"abc", "xyz"});
  EXPECT_EQ(cut(borders, "ab"), "a|b");
  EXPECT_EQ(cut(borders, "abc"), "abc");
  EXPECT_EQ(cut(borders, "abx"), "a|b|x");
  EXPECT_EQ(cut(borders, "bcabc"), "b|c|abc");
  EXPECT_EQ(cut(borders, "wxyz"), "w|xyz");
}

TEST(WordBorders, OnlyWhereACharacterBegins) {
  const WordBorders borders = borders_of({"日"});
  EXPECT_EQ(cut(borders, "日本日"), "日|本|日");
  EXPECT_EQ(cut(borders, "a\x80\x80"), "a\x80\x80");
}

/// The definition of a border: what lies between two of them merges by itself as it does within
/// the text.
void expect_same_tokens(const VocabData& data, const std::vector<std::string>& letters) {
  const auto vocab = Vocab::create(data);
  ASSERT_TRUE(vocab);
  std::unique_ptr<const WordEncoder> encoder = std::make_unique<SpmEncoder>(*vocab);
  std::vector<std::string> symbols = data.tokens;
  if (data.model != VocabModel::kSpm) {
    encoder = std::move(*BpeEncoder::create(*vocab, data.merges));
    for (std::string merge : data.merges) symbols.push_back(merge.erase(merge.find(' ', 1), 1));
  }
  const WordBorders borders = borders_of(symbols);
  std::mt19937_64 random(3);
  MergeScratch scratch;
  size_t n_cuts = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t i = 1 + random() % 40; i > 0; --i) text += letters[random() % letters.size()];
    std::vector<TokenId> whole;
    encoder->encode(text, scratch, whole);
    std::vector<TokenId> parts;
    size_t begin = 0;
    for (size_t at = 1; at <= text.size(); ++at) {
      if (at < text.size() && !borders.between(text, at)) continue;
      n_cuts += at < text.size() ? 1 : 0;
      encoder->encode(std::string_view(text).substr(begin, at - begin), scratch, parts);
      begin = at;
    }
    ASSERT_EQ(parts, whole) << cut(borders, text);
  }
  EXPECT_GT(n_cuts, 1000U);
}

TEST(WordBorders, WordsMergeByThemselvesAsWithinTheText) {
  const std::vector<std::string> letters = {
      "a",  "a",  "b",  "c", "t", "h", "e", "l", "o",  "r", "n",    "=",    "\n",  "é",
      "日", "本", "語", "😀", "i", "n", "g", "▁", "▁▁", "x", "\xE2", "\x96", "\xFF"};
  expect_same_tokens(test_spm(), letters);
  expect_same_tokens(test_char_bpe(), letters);
}

// "ab" is made first, so "bc" never is, though no token has "ab".
TEST(WordBorders, SymbolsOfMergesThatAreNoTokensCount) {
  VocabData data;
  data.model = VocabModel::kCharBpe;
  data.tokens = {"a", "b", "c", "bc"};
  data.merges = {"a b", "b c"};
  const auto tokenizer = Tokenizer::create(data);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const EncodeOptions plain{.add_special = false};
  EXPECT_EQ((*tokenizer)->encode("abc", plain), (std::vector<TokenId>{0, 1, 2}));
  EXPECT_EQ((*tokenizer)->encode("cbc", plain), (std::vector<TokenId>{2, 3}));
}

}  // namespace
}  // namespace baton::text
