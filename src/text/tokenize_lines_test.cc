#include "text/tokenize_lines.h"

#include <gtest/gtest.h>

#include <sstream>

#include "text/test_vocab.h"

namespace baton::text {
namespace {

std::string run(const std::string& input, LinesMode mode, VocabData data = test_byte_bpe()) {
  data.add_bos = true;
  const auto tokenizer = Tokenizer::create(std::move(data));
  EXPECT_TRUE(tokenizer);
  std::istringstream in(input);
  std::ostringstream out;
  tokenize_lines(in, out, **tokenizer, mode);
  return out.str();
}

TEST(TokenizeLines, EncodesWithTheDefaultsOfTokenize) {
  // Byte b has id 4 + b: BOS is 0, 'z' 126, '<' 64.
  EXPECT_EQ(run("{\"text\":\"z\"}\n", LinesMode::kEncode), "{\"ids\":[0,126]}\n");
  EXPECT_EQ(run("{\"text\":\"z\",\"add_special_tokens\":false}", LinesMode::kEncode),
            "{\"ids\":[126]}\n");
  EXPECT_EQ(run("{\"text\":\"<|im_end|>\",\"add_special_tokens\":null}\n", LinesMode::kEncode),
            "{\"ids\":[0,2]}\n");
  EXPECT_EQ(run("{\"text\":\"<z\",\"parse_special\":false,\"x\":1}\n", LinesMode::kEncode),
            "{\"ids\":[0,64,126]}\n");
  EXPECT_EQ(run("", LinesMode::kEncode), "");
}

TEST(TokenizeLines, DecodesAWholeText) {
  EXPECT_EQ(run("{\"ids\":[0,126,2]}\n", LinesMode::kDecode),
            "{\"text\":\"<|endoftext|>z<|im_end|>\"}\n");
  EXPECT_EQ(run("{\"ids\":[0,126,2],\"skip_special_tokens\":true}\n", LinesMode::kDecode),
            "{\"text\":\"z\"}\n");
  EXPECT_EQ(run("{\"ids\":[199]}\n", LinesMode::kDecode), "{\"text\":\"\xEF\xBF\xBD\"}\n");
  EXPECT_EQ(run("{\"ids\":[]}\n", LinesMode::kDecode), "{\"text\":\"\"}\n");
  // Text, through ids, to the same text, also where a space is put in front.
  const std::string ids =
      run("{\"text\":\"the the\",\"add_special_tokens\":false}\n", LinesMode::kEncode, test_spm());
  EXPECT_EQ(run(ids, LinesMode::kDecode, test_spm()), "{\"text\":\"the the\"}\n");
}

TEST(TokenizeLines, ABadLineIsAnsweredAndTheRestGoesOn) {
  const std::string bad_texts[] = {"",
                                   "nonsense",
                                   "{\"text\":\"\xFF\"}",
                                   "[1]",
                                   "{}",
                                   "{\"text\":5}",
                                   "{\"text\":\"a\",\"add_special_tokens\":1}",
                                   "{\"text\":\"a\",\"parse_special\":\"no\"}",
                                   std::string(100'000, '[')};
  for (const std::string& bad : bad_texts) {
    const std::string out = run(bad + "\n{\"text\":\"z\"}\n", LinesMode::kEncode);
    EXPECT_TRUE(out.starts_with("{\"error\":\"")) << bad.substr(0, 40) << " gives " << out;
    EXPECT_TRUE(out.ends_with("\"}\n{\"ids\":[0,126]}\n")) << out;
  }
  for (const char* bad :
       {"{\"ids\":5}", "{\"text\":\"a\"}", "{\"ids\":[-1]}", "{\"ids\":[1.0]}", "{\"ids\":[\"1\"]}",
        "{\"ids\":[100000]}", "{\"ids\":[4294967297]}", "{\"ids\":[18446744073709551616]}",
        "{\"ids\":[1],\"skip_special_tokens\":0}"}) {
    const std::string out = run(std::string(bad) + "\n{\"ids\":[126]}\n", LinesMode::kDecode);
    EXPECT_TRUE(out.starts_with("{\"error\":\"")) << bad << " gives " << out;
    EXPECT_TRUE(out.ends_with("\"}\n{\"text\":\"z\"}\n")) << out;
  }
}

}  // namespace
}  // namespace baton::text
