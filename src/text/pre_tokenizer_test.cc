#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

namespace baton::text {
namespace {

using Words = std::vector<std::string>;

Words split(std::string_view pre, std::string_view text) {
  const auto rule = find_pre_rule(pre);
  EXPECT_TRUE(rule) << rule.error().message;
  const auto tokenizer = PreTokenizer::create(rule->patterns);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  std::vector<size_t> ends;
  tokenizer->split(text, ends);
  Words words;
  size_t begin = 0;
  for (const size_t end : ends) {
    EXPECT_GT(end, begin);
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return words;
}

TEST(PreTokenizer, SplitsAsTheModelsDo) {
  EXPECT_EQ(split("gpt-2", "Hello  world's 123!\n\n x"),
            (Words{"Hello", " ", " world", "'s", " 123", "!", "\n\n", " x"}));
  EXPECT_EQ(split("smollm", "a 123 4"), (Words{"a", " ", "1", "2", "3", " ", "4"}));
  EXPECT_EQ(split("llama-bpe", "I'LL 12345 (x)\r\n\r\n  y"),
            (Words{"I", "'LL", " ", "123", "45", " (", "x", ")\r\n\r\n", " ", " y"}));
  EXPECT_EQ(split("qwen2", "x=12"), (Words{"x", "=", "1", "2"}));
  EXPECT_EQ(split("default", "a...b 1234"), (Words{"a", "...", "b", " ", "123", "4"}));
  EXPECT_EQ(split("", "a...b"), split("default", "a...b"));
  EXPECT_EQ(split("gpt-4o", "camelCaseWord HTTPServer's"),
            (Words{"camel", "Case", "Word", " HTTPServer's"}));
  EXPECT_EQ(split("deepseek-llm", "a \nb  "), (Words{"a", " ", "\n", "b", "  "}));
  EXPECT_EQ(split("gpt-2", ""), Words{});
}

TEST(PreTokenizer, WhiteSpaceIsUnicodes) {
  // U+0085, U+00A0 and U+3000 are; U+180E (a format character) and U+200B aren't.
  EXPECT_EQ(split("gpt-2", "a\u0085\u00A0\u3000b"), (Words{"a", "\u0085\u00A0", "\u3000", "b"}));
  EXPECT_EQ(split("gpt-2", "a\u180E\u200B"), (Words{"a", "\u180E\u200B"}));
}

TEST(PreTokenizer, EveryKnownRuleCompilesAndCoversItsText) {
  const auto unknown = find_pre_rule("no-such-rule");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnsupported);
  // The message lists the names.
  const std::string& message = unknown.error().message;
  EXPECT_NE(message.find("'no-such-rule'"), std::string::npos);
  std::string names = message.substr(message.find("known are ") + 10);
  int n = 0;
  for (size_t begin = 0; begin < names.size(); ++n) {
    const size_t end = std::min(names.find(", ", begin), names.size());
    split(names.substr(begin, end - begin), "Hello, wörld! 12345 don't\n\n  日本語 😀  \t end  ");
    begin = end + 2;
  }
  EXPECT_GT(n, 50);
}

TEST(PreTokenizer, LongRunsTakeLinearTime) {
  // Quadratic time would be some 10^11 steps here and run into the test's limit.
  constexpr size_t kRun = 400'000;
  for (const char* pre : {"default", "gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "gpt-4o",
                          "tekken", "falcon", "deepseek-llm", "deepseek-coder", "deepseek-v3",
                          "bloom", "viking", "bailingmoe", "seed-coder", "minicpm5"}) {
    for (const char* unit :
         {"a", "A", " ", "\n", "\t ", "\r\n", "1", "!", "'", "\u0301", "本", "😀"}) {
      std::string text;
      while (text.size() < kRun) text += unit;
      EXPECT_FALSE(split(pre, text + "x").empty());
    }
  }
}

TEST(PreTokenizer, NamesThePatternThatDoesNotCompile) {
  const auto tokenizer = PreTokenizer::create({"a", "(b"});
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(tokenizer.error().message.find("'(b'"), std::string::npos);
}

}  // namespace
}  // namespace baton::text
