#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

#include "text/test_vocab.h"

namespace baton::text {
namespace {

using Ids = std::vector<TokenId>;

std::unique_ptr<const Tokenizer> make(VocabData data) {
  auto tokenizer = Tokenizer::create(std::move(data));
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? std::move(*tokenizer) : nullptr;
}

/// The tokens as the vocabulary spells them, with a bar between.
std::string spelled(const Tokenizer& tokenizer, std::string_view text,
                    const EncodeOptions& options = {.add_special = false}) {
  std::string out;
  for (const TokenId id : tokenizer.encode(text, options)) {
    if (!out.empty()) out += '|';
    out += tokenizer.token_spelling(id);
  }
  return out;
}

TEST(Tokenizer, EncodesWords) {
  EXPECT_EQ(spelled(*make(test_byte_bpe()), "hello world the é"), "hello|Ġworld|Ġthe|Ġ|Ã©");
  EXPECT_EQ(spelled(*make(test_spm()), "hello world ß"), "▁hello|▁world|▁|<0xC3>|<0x9F>");
  EXPECT_EQ(spelled(*make(test_char_bpe()), "hello world\n\n"), "hello|▁world|\n\n");
  for (const VocabData& data : {test_byte_bpe(), test_spm(), test_char_bpe()}) {
    EXPECT_EQ(make(data)->encode("", {.add_special = false}), Ids{});
  }
}

TEST(Tokenizer, SpecialTokensAreParsedOnlyWhenAsked) {
  const auto tokenizer = make(test_byte_bpe());
  const std::string text = "<|im_start|>a<think>b<|im_end|>";
  EXPECT_EQ(spelled(*tokenizer, text), "<|im_start|>|a|<think>|b|<|im_end|>");
  const auto plain = tokenizer->encode(text, {.add_special = false, .parse_special = false});
  EXPECT_EQ(std::count(plain.begin(), plain.end(), tokenizer->find_token("<|im_start|>")), 0);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), tokenizer->find_token("<think>")), 1);
  EXPECT_EQ(tokenizer->decode(plain), text);
  EXPECT_TRUE(tokenizer->is_special(tokenizer->find_token("<|im_end|>")));
  EXPECT_FALSE(tokenizer->is_special(tokenizer->find_token("<think>")));
  EXPECT_FALSE(tokenizer->is_special(-1));
}

TEST(Tokenizer, AddsBosAndEosAsTheVocabularyAsks) {
  EXPECT_EQ(spelled(*make(test_byte_bpe()), "aa", {}), "aa");
  VocabData both = test_byte_bpe();
  both.add_bos = true;
  both.add_eos = true;
  EXPECT_EQ(spelled(*make(both), "aa", {}), "<|endoftext|>|aa|<|im_end|>");
  EXPECT_EQ(spelled(*make(both), "", {}), "<|endoftext|>|<|im_end|>");
  EXPECT_EQ(spelled(*make(both), "aa", {.add_special = false}), "aa");
  VocabData llama3 = test_byte_bpe();
  llama3.pre = "llama-bpe";
  EXPECT_TRUE(make(llama3)->adds_bos());
  EXPECT_EQ(spelled(*make(test_spm()), "the", {}), "<s>|▁the");
  VocabData without = test_spm();
  without.add_bos = false;
  EXPECT_EQ(spelled(*make(without), "the", {}), "▁the");
  VocabData no_bos = test_spm();
  no_bos.bos_id.reset();
  EXPECT_FALSE(make(no_bos)->adds_bos());
  EXPECT_EQ(make(no_bos)->bos_id(), -1);
}

TEST(Tokenizer, TheSpacePrefixComesAtTheStartAndAfterSpecialTokens) {
  const auto with = make(test_spm());
  EXPECT_EQ(spelled(*with, "the<s>the"), "▁the|<s>|▁the");
  EXPECT_EQ(with->decode(with->encode("the", {.add_special = false}), {.at_start = true}), "the");
  VocabData data = test_spm();
  data.add_space_prefix = false;
  EXPECT_EQ(spelled(*make(data), "the<s>the"), "the|<s>|the");
}

TEST(Tokenizer, SomeSpecialTokensSwallowWhiteSpace) {
  VocabData data = test_byte_bpe();
  data.strips_left = {1};
  data.strips_right = {1, 2};
  const auto tokenizer = make(data);
  EXPECT_EQ(spelled(*tokenizer, "aa \n<|im_start|> \taa"), "aa|<|im_start|>|aa");
  EXPECT_EQ(spelled(*tokenizer, "aa<|im_end|>  "), "aa|<|im_end|>");
  EXPECT_EQ(spelled(*tokenizer, "  <|im_start|>"), "<|im_start|>");
}

TEST(Tokenizer, IgnoreMergesTakesAWholeTokenThatMergingWouldNotReach) {
  VocabData data = test_byte_bpe();
  data.tokens.push_back("zzz");
  data.types.push_back(TokenType::kNormal);
  EXPECT_EQ(spelled(*make(data), "zzz"), "z|z|z");
  data.pre = "llama-bpe";
  data.add_bos = false;
  EXPECT_EQ(spelled(*make(data), "zzz"), "zzz");
}

TEST(Tokenizer, WordsAreCutAtSpacesOnlyWhereNoTokenCrosses) {
  VocabData data = test_spm();
  for (const char* token : {"e▁i", "e▁"}) {
    data.tokens.push_back(token);
    data.types.push_back(TokenType::kNormal);
    data.scores.push_back(10);  // better than all others
  }
  data.add_space_prefix = false;
  EXPECT_EQ(spelled(*make(data), "the in"), "th|e▁i|n");
}

TEST(Tokenizer, UserDefinedRunsOfSpacesAreMergedNotMatched) {
  VocabData data = test_spm_runs();
  data.add_space_prefix = false;
  const auto tokenizer = make(data);
  const TokenId two = tokenizer->n_tokens() - 30;
  const auto run = [&](size_t n) { return two + static_cast<TokenId>(n) - 2; };
  const auto encode = [&](const std::string& text) {
    return tokenizer->encode(text, {.add_special = false});
  };
  EXPECT_EQ(encode(std::string(31, ' ')), Ids{run(31)});
  EXPECT_EQ(encode(std::string(33, ' ')), (Ids{run(16), run(17)}));
  // Before "▁the" and its like, whatever their scores; U+2581 in the text is a space too.
  const TokenId the = tokenizer->find_token("the");
  EXPECT_EQ(encode("the   the"), (Ids{the, run(3), the}));
  EXPECT_EQ(encode("▁ the"), (Ids{run(2), the}));
  EXPECT_EQ(encode(" the"), Ids{tokenizer->find_token("▁the")});
  for (const size_t n : {2U, 3U}) {
    EXPECT_EQ(tokenizer->token_bytes(run(n)), std::string(n, ' '));
    EXPECT_FALSE(tokenizer->is_special(run(n)));
  }
  // Elsewhere they match from the left, the longest first.
  VocabData bytes = test_byte_bpe();
  for (size_t n = 2; n <= 5; ++n) {
    bytes.tokens.push_back(std::string(n, ' '));
    bytes.types.push_back(TokenType::kUserDefined);
  }
  EXPECT_EQ(spelled(*make(bytes), std::string(7, ' ')), "     |  ");
}

TEST(Tokenizer, TokensAsTextAndBytes) {
  const auto tokenizer = make(test_byte_bpe());
  EXPECT_EQ(tokenizer->token_bytes(4 + 0xC3), "\xC3");
  EXPECT_EQ(tokenizer->token_str(4 + 0xC3), "\xEF\xBF\xBD");
  const TokenId the = tokenizer->find_token("Ġthe");
  EXPECT_EQ(tokenizer->token_bytes(the), " the");
  EXPECT_EQ(tokenizer->token_spelling(the), "Ġthe");
  EXPECT_EQ(tokenizer->token_str(1), "<|im_start|>");
  EXPECT_EQ(tokenizer->token_bytes(-5), "");
  EXPECT_EQ(tokenizer->token_str(tokenizer->n_tokens()), "");
  EXPECT_EQ(tokenizer->max_token_bytes(), std::string("<|endoftext|>").size());
  EXPECT_EQ(make(test_spm())->token_bytes(3 + 10), "\n");
  EXPECT_EQ(tokenizer->find_token("no such token"), -1);
}

TEST(Tokenizer, EndTokensAreEosAndControlTokensOfKnownNames) {
  EXPECT_EQ(make(test_byte_bpe())->end_ids(), (Ids{0, 2}));
  VocabData data = test_byte_bpe();
  data.eos_id.reset();
  data.end_ids = {7, 0};
  EXPECT_EQ(make(data)->end_ids(), (Ids{0, 2, 7}));
  // "<|end|>" ends a message, not the answer, where there is "<|return|>".
  data.end_ids.clear();
  data.tokens[1] = "<|end|>";
  EXPECT_EQ(make(data)->end_ids(), (Ids{0, 1, 2}));
  data.tokens[2] = "<|return|>";
  EXPECT_EQ(make(data)->end_ids(), (Ids{0, 2}));
  // "</s>" is an HTML tag where "<s>" is no control token.
  VocabData html = test_byte_bpe();
  html.tokens[3] = "</s>";
  EXPECT_EQ(make(html)->end_ids(), (Ids{0, 2}));
  EXPECT_FALSE(make(html)->is_special(3));
  html.tokens[1] = "<s>";
  EXPECT_EQ(make(html)->end_ids(), (Ids{0, 2, 3}));
}

std::string random_bytes(std::mt19937_64& random, bool valid) {
  static const std::vector<std::string> units = {
      "a",   "the", " the", " ", "  ", "\n", "é",  "日本", "😀",    "<|im_end|>", "<think>",
      "<s>", "12",  "'s",   "▁", ".",  "ab", "zz", "\xE2", "\xFF", "\x80",       "\xF0\x9F"};
  std::string text;
  for (uint64_t n = random() % 40; n > 0; --n)
    text += units[random() % (units.size() - (valid ? 4 : 0))];
  return text;
}

TEST(Tokenizer, NoByteIsLostNotEvenOfInvalidUtf8) {
  std::mt19937_64 random(7);
  VocabData spm = test_spm();
  spm.add_space_prefix = false;
  for (const VocabData& data : {test_byte_bpe(), spm, test_char_bpe()}) {
    const auto tokenizer = make(data);
    for (int round = 0; round < 3000; ++round) {
      const std::string text = random_bytes(random, round % 2 == 0);
      std::string expected = text;
      if (data.model != VocabModel::kByteBpe) {
        for (size_t at = 0; (at = expected.find(kSpaceMark)) != std::string::npos;) {
          expected.replace(at, kSpaceMark.size(), " ");
        }
      }
      std::string bytes;
      for (const TokenId id : tokenizer->encode(text, {.add_special = false})) {
        ASSERT_TRUE(tokenizer->contains(id));
        bytes += tokenizer->token_bytes(id);
      }
      ASSERT_EQ(bytes, expected);
    }
  }
}

TEST(Tokenizer, LongTextWithoutSpacesIsNotQuadratic) {
  // Quadratic time would run into the test's limit.
  const std::string run(400'000, 'a');
  std::string mixed;
  for (int i = 0; i < 300'000; ++i) mixed += static_cast<char>('a' + i * 7 % 26);
  for (const VocabData& data : {test_byte_bpe(), test_spm(), test_char_bpe()}) {
    const auto tokenizer = make(data);
    EXPECT_LE(tokenizer->encode(run, {.add_special = false}).size(), run.size() / 8 + 3);
    EXPECT_FALSE(tokenizer->encode(mixed).empty());
    EXPECT_FALSE(tokenizer->encode(std::string(400'000, '\xFF')).empty());
    EXPECT_FALSE(tokenizer->encode(std::string(400'000, ' ')).empty());
    EXPECT_FALSE(tokenizer->encode(std::string(400'000, '<')).empty());
  }
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  std::mt19937_64 random(8);
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i) texts.push_back(random_bytes(random, false));
  for (const VocabData& data : {test_byte_bpe(), test_spm()}) {
    std::vector<Ids> expected;
    const auto alone = make(data);
    for (const std::string& text : texts) expected.push_back(alone->encode(text));
    const auto shared = make(data);  // with a cold cache
    std::vector<std::thread> threads;
    std::vector<int> n_wrong(4, 0);
    for (size_t t = 0; t < n_wrong.size(); ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = 0; i < texts.size(); ++i) {
          const size_t at = (i * (2 * t + 1)) % texts.size();
          n_wrong[t] += shared->encode(texts[at]) != expected[at] ? 1 : 0;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(n_wrong, std::vector<int>(4, 0));
  }
}

TEST(Tokenizer, RefusesVocabulariesThatCanNotBeRight) {
  using Change = void (*)(VocabData&);
  const std::pair<const char*, Change> changes[] = {
      {"tokenizer.ggml.tokens", [](VocabData& d) { d.tokens.clear(); }},
      {"tokenizer.ggml.token_type", [](VocabData& d) { d.types.pop_back(); }},
      {"tokenizer.ggml.scores has", [](VocabData& d) { d.scores.pop_back(); }},
      {"tokenizer.ggml.scores[5]", [](VocabData& d) { d.scores[5] = NAN; }},
      {"tokenizer.ggml.bos_token_id is -1", [](VocabData& d) { d.bos_id = -1; }},
      {"tokenizer.ggml.eos_token_id", [](VocabData& d) { d.eos_id = 1'000'000; }},
      {"tokenizer.ggml.unknown_token_id", [](VocabData& d) { d.unk_id = -7; }},
      {"tokenizer.ggml.eot_token_id", [](VocabData& d) { d.end_ids = {99'999}; }},
      {"swallows", [](VocabData& d) { d.strips_left = {-1}; }},
      {"swallows", [](VocabData& d) { d.strips_right = {-1}; }},
  };
  for (const auto& [message, change] : changes) {
    VocabData data = test_spm();
    change(data);
    const auto tokenizer = Tokenizer::create(std::move(data));
    ASSERT_FALSE(tokenizer) << message;
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(tokenizer.error().message.find(message), std::string::npos)
        << tokenizer.error().message;
  }
  VocabData data = test_byte_bpe();
  data.pre = "unheard-of\n" + std::string(1000, 'x');
  const auto tokenizer = Tokenizer::create(std::move(data));
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(tokenizer.error().message.find("tokenizer.ggml.pre is 'unheard-of\\x0a"),
            std::string::npos);
  EXPECT_EQ(tokenizer.error().message.find(std::string(100, 'x')), std::string::npos);
}

TEST(Tokenizer, OddVocabulariesDoNoHarm) {
  VocabData data = test_byte_bpe();
  data.tokens[1] = "";                    // an empty special token never matches
  data.tokens.push_back("\xFF\xFE bad");  // not UTF-8
  data.tokens.push_back(data.tokens[10]);
  data.types.resize(data.tokens.size(), TokenType::kNormal);
  data.types.back() = TokenType::kByte;  // but no "<0xNN>"
  const auto tokenizer = make(data);
  EXPECT_EQ(spelled(*tokenizer, "hello"), "hello");
  EXPECT_EQ(tokenizer->token_spelling(tokenizer->n_tokens() - 2), "\xEF\xBF\xBD\xEF\xBF\xBD bad");
}

}  // namespace
}  // namespace baton::text
