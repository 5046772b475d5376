#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>

#include "text/byte_alphabet.h"

namespace baton::text {
namespace {

TEST(Utf8, ReplacesMaximalSubpartsAsPythonDoes) {
  // bytes.decode("utf-8", errors="replace") of Python 3.11; R stands for U+FFFD.
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"plain \x7F", "plain \x7F"},
      {"é 日本 😀", "é 日本 😀"},
      {"\x80", "R"},
      {"\xBF\xBF", "RR"},
      {"\xC0\x80", "RR"},
      {"\xC1\xBF", "RR"},
      {"\xC3", "R"},
      {"\xC3(", "R("},
      {"\xE0\x80\x80", "RRR"},
      {"\xE0\xA0", "R"},
      {"\xE2\x82", "R"},
      {"\xE2\x82x", "Rx"},
      {"\xE2(\xA1", "R(R"},
      {"\xED\xA0\x80", "RRR"},
      {"\xED\x9F\xBF", "\xED\x9F\xBF"},
      {"\xEF\xBF\xBF", "\xEF\xBF\xBF"},
      {"\xF0\x80\x80\x80", "RRRR"},
      {"\xF0\x9F", "R"},
      {"\xF0\x9F\x98", "R"},
      {"\xF0\x9F\x98\x41", "RA"},
      {"\xF0\x9F\xF0\x9F\x98\x80", "R\xF0\x9F\x98\x80"},
      {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
      {"\xF4\x90\x80\x80", "RRRR"},
      {"\xF5\x80", "RR"},
      {"\xFF\xFE", "RR"},
      {"a\xF1\x80\x80\xE1\x80\xC2 b\x80 c\x80\xBF d", "aRRR bR cRR d"},
  };
  for (const auto& [bytes, expected] : cases) {
    std::string with_replacements;
    for (const char c : expected) {
      if (c == 'R') {
        with_replacements += kReplacement;
      } else {
        with_replacements += c;
      }
    }
    EXPECT_EQ(to_valid_utf8(bytes), with_replacements) << ::testing::PrintToString(bytes);
    EXPECT_EQ(is_valid_utf8(bytes), expected.find('R') == std::string::npos);
  }
}

TEST(Utf8, ValidPrefixStopsAtTheFirstWrongByte) {
  EXPECT_EQ(valid_utf8_prefix("0123456789abcdef"), 16U);
  EXPECT_EQ(valid_utf8_prefix("01234567\x80"), 8U);
  EXPECT_EQ(valid_utf8_prefix("0123456é\xE2\x82"), 9U);
}

TEST(Utf8Stream, AnyCutGivesTheSameTextAndEachPieceIsValid) {
  std::mt19937_64 random(1);
  const std::string alphabet = "a\x80\xBF\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\xED\xA0\xF4\x90\xFF";
  for (int round = 0; round < 5000; ++round) {
    std::string bytes;
    for (uint64_t n = random() % 24; n > 0; --n) bytes += alphabet[random() % alphabet.size()];
    Utf8Stream stream;
    std::string text;
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t n = 1 + random() % 5;
      std::string piece;
      stream.push(bytes.substr(begin, n), piece);
      EXPECT_TRUE(is_valid_utf8(piece));
      text += piece;
      begin += n;
    }
    stream.flush(text);
    ASSERT_EQ(text, to_valid_utf8(bytes));
    EXPECT_FALSE(stream.pending());
  }
}

TEST(ByteAlphabet, SpellsEachByteAsOneCharacterAndBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(bytes_from_alphabet(alphabet_from_bytes(all)), all);
  EXPECT_EQ(alphabet_from_bytes(" the\n"), "ĠtheĊ");
  EXPECT_TRUE(is_in_alphabet("ĠtheĊ"));
  EXPECT_FALSE(is_in_alphabet("a b"));
  EXPECT_FALSE(is_in_alphabet("<｜end｜>"));
  EXPECT_EQ(bytes_from_alphabet("<｜Ġ｜>"), "<｜ ｜>");
}

}  // namespace
}  // namespace baton::text
