#include "api/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace baton::api {
namespace {

std::string as_json(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

TEST(JsonString, Escapes) {
  EXPECT_EQ(as_json("a\"b\\c\n\r\t"), R"("a\"b\\c\n\r\t")");
  EXPECT_EQ(as_json(std::string_view("\0\x1F\x7F", 3)), R"("\u0000\u001f\u007f")");
  EXPECT_EQ(as_json("\u20AC\U0001F600"), "\"\u20AC\U0001F600\"");
  EXPECT_EQ(as_json("\u2028\u2029"), R"("\u2028\u2029")");
}

TEST(JsonString, BytesThatAreNoUtf8BecomeReplacements) {
  EXPECT_EQ(as_json("a\xFFz"), "\"a\uFFFDz\"");
  EXPECT_EQ(as_json("\xE2\x82"), "\"\uFFFD\uFFFD\"");
  EXPECT_EQ(to_valid_utf8("\xC0\x80\xED\xA0\x80\xF4\x90\x80\x80"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(JsonString, AnyBytesReadBackAsTheirUtf8) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 12, '\0');
    // Mostly bytes that begin or continue sequences, so that valid ones come up too.
    for (char& c : bytes)
      c = static_cast<char>(random() % 3 == 0 ? random() : 0x80 + random() % 0x80);
    const nlohmann::json back = nlohmann::json::parse(as_json(bytes));
    ASSERT_EQ(back.get<std::string>(), to_valid_utf8(bytes));
    ASSERT_EQ(is_utf8(bytes), to_valid_utf8(bytes) == bytes);
    ASSERT_TRUE(is_utf8(to_valid_utf8(bytes)));
  }
}

TEST(JsonString, EveryCodePointIsKept) {
  for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 37) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    if (c < 0x80) {
      text = {static_cast<char>(c)};
    } else if (c < 0x800) {
      text = {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
      text = {static_cast<char>(0xE0 | (c >> 12)), static_cast<char>(0x80 | ((c >> 6) & 63)),
              static_cast<char>(0x80 | (c & 63))};
    } else {
      text = {static_cast<char>(0xF0 | (c >> 18)), static_cast<char>(0x80 | ((c >> 12) & 63)),
              static_cast<char>(0x80 | ((c >> 6) & 63)), static_cast<char>(0x80 | (c & 63))};
    }
    ASSERT_TRUE(is_utf8(text)) << c;
    ASSERT_EQ(nlohmann::json::parse(as_json(text)).get<std::string>(), text) << c;
    ASSERT_EQ(count_code_points(text), 1) << c;
  }
}

TEST(JsonWriter, CommasAndNesting) {
  JsonWriter json;
  json.begin_object().key("a").begin_array().integer(1).integer(-2).begin_object().end_object();
  json.string("x").end_array().key("b").null().key("c").begin_object().key("d").boolean(true);
  json.end_object().key_escaped("e\"").raw("[]").end_object();
  EXPECT_EQ(json.take(), R"({"a":[1,-2,{},"x"],"b":null,"c":{"d":true},"e\"":[]})");
}

TEST(JsonWriter, FloatsReadBack) {
  for (const float value : {0.0F, -0.25F, 1e-30F, -17.345678F, 3.4e38F}) {
    JsonWriter json;
    json.number(value);
    EXPECT_EQ(nlohmann::json::parse(json.take()).get<float>(), value);
  }
  JsonWriter json;
  const float infinity = std::numeric_limits<float>::infinity();
  json.begin_array().number(-infinity).number(infinity).number(std::nanf("")).end_array();
  EXPECT_EQ(nlohmann::json::parse(json.take()), nlohmann::json({-9999.0, 9999.0, -9999.0}));
}

}  // namespace
}  // namespace baton::api
