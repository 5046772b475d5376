#include "bench/stream_reader.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton::bench {
namespace {

/// The events of `text`, read in pieces of `step` bytes.
std::vector<std::string> events(std::string_view text, size_t step) {
  SseReader reader;
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size(); at += step) {
    EXPECT_TRUE(
        reader.read(text.substr(at, step), [&](std::string_view data) { out.emplace_back(data); }));
  }
  return out;
}

TEST(SseReader, EventsHoweverTheyArrive) {
  using Texts = std::vector<std::string>;
  struct Case {
    std::string_view text;
    Texts expected;
  };
  const Case cases[] = {
      {"data: a\n\ndata: b\n\n", {"a", "b"}},
      {"data: a\r\n\r\ndata:b\r\r", {"a", "b"}},
      {"data: one\r\ndata: two\r\n\r\n", {"one\ntwo"}},
      {": a comment\n\n:\n\ndata: x\n\n", {"x"}},
      {"event: e\nid: 7\ndata: one\ndata: two\nretry: 3\n\n", {"one\ntwo"}},
      {"data\n\ndata:\n\ndatax: no\n\n", {"", ""}},
      {"data:  two blanks\n\n", {" two blanks"}},
      {"data: not ended\n", {}},
      {"\n\n\n", {}},
  };
  for (const Case& c : cases) {
    for (const size_t step : {1, 2, 3, 7, 1000}) EXPECT_EQ(events(c.text, step), c.expected);
  }
}

TEST(SseReader, AnEventWithoutEndIsRefused) {
  SseReader reader;
  const std::string piece(1 << 20, 'x');
  const auto ignore = [](std::string_view) {};
  EXPECT_TRUE(reader.read("data: ", ignore));
  bool readable = true;
  for (int i = 0; i < 20; ++i) readable = readable && reader.read(piece, ignore);
  EXPECT_FALSE(readable);
  // The same of many lines.
  SseReader lines;
  const std::string line = "data: " + piece + "\n";
  readable = true;
  for (int i = 0; i < 20; ++i) readable = readable && lines.read(line, ignore);
  EXPECT_FALSE(readable);
}

TEST(StreamChunk, WhatMatters) {
  const auto text = read_stream_chunk(
      R"({"id":"1","choices":[{"index":0,"logprobs":{"text":["q"]},"text":"hi"}],"usage":null})");
  EXPECT_TRUE(text.is_json && text.has_choice && text.has_text);
  EXPECT_FALSE(text.completion_tokens.has_value());

  const auto role =
      read_stream_chunk(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})");
  EXPECT_TRUE(role.has_choice);
  EXPECT_FALSE(role.has_text);
  EXPECT_TRUE(read_stream_chunk(R"({"choices":[{"delta":{"content":"x"}}]})").has_text);
  // The first choice only.
  EXPECT_FALSE(read_stream_chunk(R"({"choices":[{"text":""},{"text":"b"}]})").has_text);

  const auto usage = read_stream_chunk(
      R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"details":{"prompt_tokens":99}}})");
  EXPECT_FALSE(usage.has_choice);
  EXPECT_EQ(usage.prompt_tokens, 7);
  EXPECT_EQ(usage.completion_tokens, 3);
  EXPECT_FALSE(read_stream_chunk(R"({"x":{"usage":{"prompt_tokens":7}}})").prompt_tokens);
  EXPECT_FALSE(read_stream_chunk(R"({"usage":{"prompt_tokens":-7}})").prompt_tokens);
  EXPECT_FALSE(read_stream_chunk(R"({"usage":{"prompt_tokens":1e99}})").prompt_tokens);
}

TEST(StreamChunk, Errors) {
  EXPECT_EQ(read_stream_chunk(R"({"error":{"message":"no room","code":5}})").error, "no room");
  EXPECT_EQ(read_stream_chunk(R"({"error":"plain"})").error, "plain");
  EXPECT_EQ(read_stream_chunk(R"({"error":{"code":5}})").error, "");
  EXPECT_FALSE(read_stream_chunk(R"({"error":null,"choices":[]})").error.has_value());
}

TEST(StreamChunk, NotAnObject) {
  for (const char* bad : {"", "[DONE]", "[1]", "7", "{", "{\"a\":}", "null", "{}x", "\xff"}) {
    EXPECT_FALSE(read_stream_chunk(bad).is_json) << bad;
  }
  EXPECT_TRUE(read_stream_chunk(" {} ").is_json);
  // Deep nesting costs no stack.
  EXPECT_FALSE(read_stream_chunk(std::string(1 << 20, '[')).is_json);
}

}  // namespace
}  // namespace baton::bench
