#include "text/word_encoder.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "text/byte_alphabet.h"
#include "text/special_matcher.h"
#include "text/test_vocab.h"
#include "text/word_cache.h"

namespace baton::text {
namespace {

using Parts = std::vector<std::string>;

/// The definition: again and again join the best pair, the leftmost of equals.
template <typename RankFn>  // rank(left, right) → rank, or SIZE_MAX
Parts merge_naively(Parts parts, RankFn&& rank) {
  while (true) {
    size_t best = SIZE_MAX;
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const size_t r = rank(parts[i], parts[i + 1]);
      if (r < best) {
        best = r;
        at = i;
      }
    }
    if (best == SIZE_MAX) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

std::string random_word(std::mt19937_64& random, size_t n_letters) {
  static const std::vector<std::string> letters = {"a", "a", "a",  "b", "b", "c",  "t",  "h", "e",
                                                   "i", "n", "\n", "=", "é", "日", "本", "😀", "語"};
  std::string word;
  for (size_t i = 0; i < n_letters; ++i) word += letters[random() % letters.size()];
  return word;
}

std::map<std::pair<std::string, std::string>, size_t> ranks_of(const VocabData& data) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t i = 0; i < data.merges.size(); ++i) {
    const size_t space = data.merges[i].find(' ', 1);
    ranks.emplace(std::pair(data.merges[i].substr(0, space), data.merges[i].substr(space + 1)), i);
  }
  return ranks;
}

/// What `encoder` makes of `word`, as the tokens' spellings.
Parts spell(const WordEncoder& encoder, const Vocab& vocab, const std::string& word) {
  MergeScratch scratch;
  std::vector<TokenId> ids;
  encoder.encode(word, scratch, ids);
  Parts parts;
  for (const TokenId id : ids) parts.push_back(vocab.data().tokens[static_cast<size_t>(id)]);
  return parts;
}

TEST(BpeEncoder, MergesAsTheDefinitionSays) {
  const VocabData data = test_byte_bpe();
  const auto ranks = ranks_of(data);
  const auto vocab = Vocab::create(data);
  ASSERT_TRUE(vocab);
  const auto encoder = BpeEncoder::create(*vocab, data.merges);
  ASSERT_TRUE(encoder) << encoder.error().message;
  std::mt19937_64 random(2);
  for (int round = 0; round < 600; ++round) {
    const std::string word = random_word(random, 1 + random() % (round % 5 == 0 ? 200 : 30));
    Parts letters;
    for (const char c : word) letters.push_back(alphabet_from_bytes(std::string(1, c)));
    const Parts expected = merge_naively(letters, [&](const auto& left, const auto& right) {
      const auto at = ranks.find({left, right});
      return at == ranks.end() ? SIZE_MAX : at->second;
    });
    ASSERT_EQ(spell(**encoder, *vocab, word), expected) << word;
  }
}

TEST(BpeEncoder, CharactersThatNoTokenSpellsBecomeBytes) {
  const VocabData data = test_char_bpe();
  const auto vocab = Vocab::create(data);
  ASSERT_TRUE(vocab);
  const auto encoder = BpeEncoder::create(*vocab, data.merges);
  ASSERT_TRUE(encoder);
  EXPECT_EQ(spell(**encoder, *vocab, "abab日本"), (Parts{"abab", "日本"}));
  EXPECT_EQ(spell(**encoder, *vocab, "aß\xFF"), (Parts{"a", "<0xC3>", "<0x9F>", "<0xFF>"}));
}

TEST(BpeEncoder, MergesThroughSymbolsThatTheVocabularyLacks) {
  VocabData data;
  data.tokens = {"a", "b", "c", "abc"};
  const std::vector<std::string> merges = {"a b", "ab c"};
  const auto vocab = Vocab::create(data);
  ASSERT_TRUE(vocab);
  const auto encoder = BpeEncoder::create(*vocab, merges);
  ASSERT_TRUE(encoder);
  EXPECT_EQ(spell(**encoder, *vocab, "abc"), (Parts{"abc"}));
  EXPECT_EQ(spell(**encoder, *vocab, "abb"), (Parts{"a", "b", "b"}));
  EXPECT_EQ(spell(**encoder, *vocab, "xa"), (Parts{"a"}));  // no token for x, and no unknown token
}

TEST(BpeEncoder, RefusesMergesWithoutTwoHalves) {
  const auto vocab = Vocab::create(test_byte_bpe());
  ASSERT_TRUE(vocab);
  for (const char* bad : {"", "a", "ab", "a ", " ", "\x1B[31m\n"}) {
    const auto encoder = BpeEncoder::create(*vocab, {"a b", bad});
    ASSERT_FALSE(encoder) << bad;
    EXPECT_EQ(encoder.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(encoder.error().message.find("tokenizer.ggml.merges[1]"), std::string::npos);
    EXPECT_EQ(encoder.error().message.find('\x1B'), std::string::npos);
  }
}

TEST(SpmEncoder, MergesAsTheDefinitionSays) {
  const VocabData data = test_spm();
  const auto vocab = Vocab::create(data);
  ASSERT_TRUE(vocab);
  std::map<std::string, float> scores;
  for (size_t i = 0; i < data.tokens.size(); ++i) scores.emplace(data.tokens[i], data.scores[i]);
  const SpmEncoder encoder(*vocab);
  std::mt19937_64 random(3);
  for (int round = 0; round < 600; ++round) {
    const std::string word = random_word(random, 1 + random() % (round % 5 == 0 ? 200 : 30));
    const Parts merged =
        merge_naively(test_letters(word, false), [&](const auto& left, const auto& right) {
          const auto at = scores.find(left + right);
          // Scores are whole numbers from -1000 to 0.
          return at == scores.end() ? SIZE_MAX : static_cast<size_t>(-at->second);
        });
    Parts expected;
    for (const std::string& part : merged) {
      if (scores.count(part) != 0) {
        expected.push_back(part);
      } else {
        for (const char c : part) {
          expected.push_back(fmt::format("<0x{:02X}>", static_cast<uint8_t>(c)));
        }
      }
    }
    ASSERT_EQ(spell(encoder, *vocab, word), expected) << word;
  }
}

TEST(SpmEncoder, MakesUserDefinedRunsOfSpacesFirstInTheOrderOfTheirIds) {
  const VocabData data = test_spm_runs();
  const auto vocab = Vocab::create(data);
  ASSERT_TRUE(vocab);
  const SpmEncoder encoder(*vocab);
  for (size_t n = 1; n <= 200; ++n) {
    std::string word;
    for (size_t i = 0; i < n; ++i) word += kSpaceMark;
    const Parts expected =
        merge_naively(test_letters(word, false), [](const auto& left, const auto& right) {
          const size_t n_spaces = (left.size() + right.size()) / kSpaceMark.size();
          return n_spaces <= kLongestTestRun ? n_spaces : SIZE_MAX;
        });
    EXPECT_EQ(expected.size(), n <= kLongestTestRun ? 1 : n / 16) << n;
    EXPECT_EQ(spell(encoder, *vocab, word), expected) << n;
  }
}

TEST(SpmEncoder, WithoutByteTokensTheUnknownTokenStandsOnceForACharacter) {
  VocabData data;
  data.model = VocabModel::kSpm;
  data.tokens = {"<unk>", "a"};
  data.types = {TokenType::kUnknown, TokenType::kNormal};
  data.scores = {0, 0};
  data.unk_id = 0;
  const auto vocab = Vocab::create(data);
  ASSERT_TRUE(vocab);
  EXPECT_EQ(spell(SpmEncoder(*vocab), *vocab, "a日a"), (Parts{"a", "<unk>", "a"}));
}

TEST(SpecialMatcher, FindsTheLongestAtEachPlaceFromLeftToRight) {
  const std::vector<std::string> tokens = {"<a>", "<a>b", "ab", "b", "bbbb", "<"};
  std::vector<SpecialMatcher::Entry> entries;
  for (size_t i = 0; i < tokens.size(); ++i) {
    entries.push_back({tokens[i], static_cast<TokenId>(i)});
  }
  const SpecialMatcher matcher(entries);
  std::mt19937_64 random(4);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (uint64_t n = random() % 16; n > 0; --n) text += "<a>bx"[random() % 5];
    for (size_t begin = 0; begin <= text.size(); ++begin) {
      SpecialMatcher::Match expected{text.size(), 0, -1};
      for (size_t at = begin; at < text.size() && expected.id < 0; ++at) {
        for (size_t t = 0; t < tokens.size(); ++t) {
          if (text.compare(at, tokens[t].size(), tokens[t]) == 0 &&
              tokens[t].size() > expected.n_bytes) {
            expected = {at, tokens[t].size(), static_cast<TokenId>(t)};
          }
        }
      }
      const auto match = matcher.next(text, begin);
      ASSERT_EQ(match.begin, expected.begin) << text << " from " << begin;
      ASSERT_EQ(match.n_bytes, expected.n_bytes);
      ASSERT_EQ(match.id, expected.id);
    }
  }
  EXPECT_EQ(SpecialMatcher().next("abc", 0).id, -1);
}

TEST(WordCache, GivesBackWhatWasPutInAndNothingElse) {
  const WordCache cache;
  const std::vector<TokenId> ids = {7, 8};
  std::vector<TokenId> out = {1};
  EXPECT_FALSE(cache.find("word", 5, out));
  cache.insert("word", 5, ids.data(), ids.size());
  EXPECT_TRUE(cache.find("word", 5, out));
  EXPECT_EQ(out, (std::vector<TokenId>{1, 7, 8}));
  EXPECT_FALSE(cache.find("ward", 5, out));  // the same hash, another word
  cache.insert("ward", 5, ids.data(), 1);    // takes the slot
  EXPECT_FALSE(cache.find("word", 5, out));
  const std::string longest(WordCache::kMaxWordBytes, 'x');
  cache.insert(longest, 6, ids.data(), 2);
  EXPECT_TRUE(cache.find(longest, 6, out));
  cache.insert(longest + "x", 9, ids.data(), 2);
  EXPECT_FALSE(cache.find(longest + "x", 9, out));
  const std::vector<TokenId> many(WordCache::kMaxTokens + 1, 3);
  cache.insert("many", 7, many.data(), many.size());
  EXPECT_FALSE(cache.find("many", 7, out));
}

}  // namespace
}  // namespace baton::text
