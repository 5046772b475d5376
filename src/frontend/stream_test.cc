// Streams: chunks, their end, errors after the first byte, clients that leave.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "frontend/frontend_test_support.h"

namespace baton::frontend {
namespace {

using nlohmann::json;

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kAbort =
    "vllm:request_success_total{model_name=\"tiny\",finished_reason=\"abort\"}";

/// All text of one choice.
std::string text_of(const std::vector<json>& events, int index, bool chat = false) {
  std::string out;
  for (const json& event : events) {
    for (const json& choice : event["choices"]) {
      if (choice["index"] != index) continue;
      out +=
          chat ? choice["delta"]["content"].get<std::string>() : choice["text"].get<std::string>();
    }
  }
  return out;
}

TEST(Stream, CompletionChunks) {
  Fixture fixture;
  const auto exchange = fixture.post(
      kCompletions, R"({"prompt":"a","stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_TRUE(exchange->streaming);
  EXPECT_TRUE(exchange->response->content_type.starts_with("text/event-stream"));
  EXPECT_TRUE(exchange->response->headers.at("X-Request-Id").starts_with("cmpl-"));
  fixture.backend.prompt(0, 1);
  exchange->run_posted();
  EXPECT_TRUE(exchange->events().empty());
  fixture.backend.text(0, 0, "x");
  exchange->run_posted();
  EXPECT_EQ(exchange->events().size(), 1U);
  fixture.backend.text(0, 0, "y", FinishReason::kStop);
  exchange->run_posted();
  EXPECT_TRUE(exchange->done_sent());
  const auto events = exchange->events();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0]["object"], "text_completion");
  EXPECT_EQ(events[0]["id"], exchange->response->headers.at("X-Request-Id"));
  EXPECT_EQ(events[0]["choices"], json::parse(R"([{"index":0,"text":"x","logprobs":null,
                                                  "finish_reason":null,"stop_reason":null}])"));
  EXPECT_TRUE(events[0].contains("usage") && events[0]["usage"].is_null());
  EXPECT_EQ(events[1]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[2]["choices"], json::array());
  EXPECT_EQ(events[2]["usage"]["completion_tokens"], 3);
  EXPECT_EQ(events[2]["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
}

TEST(Stream, NoUsageUnlessAsked) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"a","stream":true})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "x", FinishReason::kLength);
  exchange->run_posted();
  ASSERT_EQ(exchange->events().size(), 1U);
  EXPECT_FALSE(exchange->events()[0].contains("usage"));
  EXPECT_TRUE(exchange->done_sent());
}

TEST(Stream, ChatChunks) {
  Fixture fixture;
  const auto exchange =
      fixture.post(kChat, R"({"messages":[{"role":"user","content":"a"}],"n":2,"stream":true})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "x");
  fixture.backend.text(0, 1, "y");
  exchange->run_posted();
  fixture.backend.text(0, 0, "X", FinishReason::kStop);
  fixture.backend.text(0, 1, "Y", FinishReason::kLength);
  exchange->run_posted();
  const auto events = exchange->events();
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["delta"], json::parse(R"({"role":"assistant","content":"x"})"));
  EXPECT_EQ(events[1]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[1]["choices"][0]["index"], 1);
  EXPECT_EQ(events[2]["choices"][0]["delta"], json::parse(R"({"content":"X"})"));
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(text_of(events, 0, true), "xX");
  EXPECT_EQ(text_of(events, 1, true), "yY");
  EXPECT_TRUE(exchange->done_sent());
}

TEST(Stream, UpdatesThatQueueUpBecomeOneChunk) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"a","stream":true})");
  fixture.backend.prompt(0);
  for (const char* text : {"a", "b", "c", "d"}) fixture.backend.text(0, 0, text);
  exchange->run_posted();
  EXPECT_EQ(exchange->events().size(), 1U);
  EXPECT_EQ(exchange->n_writes, 1);
  EXPECT_EQ(text_of(exchange->events(), 0), "abcd");
}

TEST(Stream, NothingOfAStopStringIsEverSent) {
  Fixture fixture;
  const auto exchange = fixture.post(
      kCompletions, R"({"prompt":"a","stream":true,"stop":["\n\nQ:"],"max_tokens":50})");
  fixture.backend.prompt(0);
  for (const char c : std::string("A\nB\n\nR\n\nQ:more")) {
    if (fixture.backend.requests[0].cancelled) break;
    fixture.backend.text(0, 0, std::string(1, c));
    exchange->run_posted();
    EXPECT_EQ(text_of(exchange->events(), 0).find("\n\nQ"), std::string::npos);
  }
  EXPECT_TRUE(fixture.backend.requests[0].cancelled);
  EXPECT_EQ(text_of(exchange->events(), 0), "A\nB\n\nR");
  EXPECT_EQ(exchange->events().back()["choices"][0]["stop_reason"], "\n\nQ:");
  EXPECT_TRUE(exchange->done_sent());
}

TEST(Stream, TokenIdsComeOnceEvenWithoutText) {
  Fixture fixture;
  const auto exchange = fixture.post(
      kCompletions, R"({"prompt":"p","stream":true,"return_token_ids":true,"stop":"zz"})");
  fixture.backend.prompt(0);
  std::vector<TokenId> ids;
  for (const char* piece : {"\xE2", "\x82", "\xAC", "z", "k"}) {
    fixture.backend.text(0, 0, piece);
    exchange->run_posted();
  }
  fixture.backend.text(0, 0, "", FinishReason::kStop);
  exchange->run_posted();
  const auto events = exchange->events();
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0]["choices"][0]["text"], "");
  EXPECT_EQ(events[0]["choices"][0]["prompt_token_ids"], json({256, 'p'}));
  EXPECT_FALSE(events[1]["choices"][0].contains("prompt_token_ids"));
  for (const json& event : events) {
    for (const TokenId id : event["choices"][0]["token_ids"]) ids.push_back(id);
  }
  EXPECT_EQ(ids, (std::vector<TokenId>{0xE2, 0x82, 0xAC, 'z', 'k', 257}));
  EXPECT_EQ(text_of(events, 0), "\u20ACzk");
}

TEST(Stream, ChatPromptTokenIdsAreAtTheTop) {
  Fixture fixture;
  const auto exchange = fixture.post(
      kChat,
      R"({"messages":[{"role":"user","content":"a"}],"stream":true,"return_token_ids":true})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "x", FinishReason::kLength);
  exchange->run_posted();
  EXPECT_EQ(exchange->events()[0]["prompt_token_ids"].size(),
            std::string("user:a\nassistant:").size());
}

TEST(Stream, LogprobsOfEveryTokenOnce) {
  Fixture fixture;
  const auto exchange = fixture.post(
      kChat, R"({"messages":[{"role":"user","content":"a"}],"stream":true,"logprobs":true})");
  fixture.backend.prompt(0);
  for (const char* piece : {"\xE2", "\x82", "\xAC"}) {
    fixture.backend.text(0, 0, piece);
    exchange->run_posted();
  }
  fixture.backend.text(0, 0, "k", FinishReason::kLength);
  exchange->run_posted();
  std::vector<int> bytes;
  for (const json& event : exchange->events()) {
    for (const json& token : event["choices"][0]["logprobs"]["content"]) {
      for (const int byte : token["bytes"]) bytes.push_back(byte);
    }
  }
  EXPECT_EQ(bytes, (std::vector<int>{0xE2, 0x82, 0xAC, 'k'}));
}

TEST(Stream, EchoComesFirst) {
  Fixture fixture;
  const auto exchange =
      fixture.post(kCompletions, R"({"prompt":["ab","c"],"stream":true,"echo":true,"n":2})");
  fixture.backend.prompt(0);
  exchange->run_posted();
  EXPECT_EQ(exchange->events().size(), 2U);
  EXPECT_EQ(text_of(exchange->events(), 1), "ab");
  fixture.backend.prompt(1);
  for (size_t i : {0U, 1U}) {
    for (int choice : {0, 1}) fixture.backend.text(i, choice, "!", FinishReason::kLength);
  }
  exchange->run_posted();
  EXPECT_EQ(text_of(exchange->events(), 0), "ab!");
  EXPECT_EQ(text_of(exchange->events(), 3), "c!");
  EXPECT_TRUE(exchange->done_sent());
}

TEST(Stream, ErrorAfterTheFirstByte) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":["a","b"],"stream":true})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "x");
  exchange->run_posted();
  fixture.backend.event(1, {.choice = 0,
                            .tokens = {},
                            .logprobs = {},
                            .finish = FinishReason::kError,
                            .stop_id = {},
                            .error = "lost"});
  fixture.backend.text(0, 0, "late");
  exchange->run_posted();
  const auto events = exchange->events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1]["error"]["message"], "lost");
  EXPECT_EQ(events[1]["error"]["type"], "server_error");
  EXPECT_TRUE(exchange->done_sent());
  EXPECT_TRUE(fixture.backend.requests[0].cancelled);
}

TEST(Stream, ErrorInTheSameBatchAsText) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"a","stream":true})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "x");
  fixture.backend.text(0, 0, "", FinishReason::kCancelled);
  exchange->run_posted();
  const auto events = exchange->events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0]["choices"][0]["text"], "x");
  EXPECT_EQ(events[1]["error"]["type"], "server_error");
  EXPECT_TRUE(exchange->done_sent());
}

TEST(Stream, NoTokensAtAll) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"a","stream":true})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "", FinishReason::kStop);
  exchange->run_posted();
  ASSERT_EQ(exchange->events().size(), 1U);
  EXPECT_EQ(exchange->events()[0]["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(exchange->done_sent());
}

/// The client leaves in every state: before any update, with updates unread, half way, and after
/// the end.
TEST(Disconnect, InEveryState) {
  for (const char* stream : {"true", "false"}) {
    for (int state = 0; state < 4; ++state) {
      SCOPED_TRACE(std::string(stream) + " " + std::to_string(state));
      Fixture fixture;
      const auto exchange = fixture.post(
          kCompletions, std::string(R"({"prompt":["a","b"],"n":2,"stream":)") + stream + "}");
      std::weak_ptr<FakeExchange> weak = exchange;
      if (state >= 1) fixture.backend.prompt(0);
      if (state >= 2) {
        fixture.backend.text(0, 0, "x", FinishReason::kLength);
        exchange->run_posted();
        fixture.backend.text(0, 1, "unread");
      }
      if (state == 3) {
        fixture.backend.text(0, 1, "y", FinishReason::kLength);
        exchange->run_posted();  // the first prompt is complete
      }
      exchange->close();
      EXPECT_EQ(fixture.backend.requests[0].cancelled, state != 3);
      EXPECT_TRUE(fixture.backend.requests[1].cancelled);
      const std::string written = exchange->written;
      exchange->run_posted();
      EXPECT_EQ(exchange->written, written) << "written to a client that has gone";
      EXPECT_EQ(fixture.series(kAbort), 1);
      fixture.backend.requests.clear();
      const long n_holders = weak.use_count();
      EXPECT_EQ(n_holders, 1) << "the exchange is still held";
    }
  }
}

TEST(Disconnect, AfterTheEndIsNothing) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"a","stream":true})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "x", FinishReason::kLength);
  exchange->run_posted();
  exchange->ended = false;  // so that the callback runs
  exchange->close();
  EXPECT_FALSE(fixture.backend.requests[0].cancelled);
  EXPECT_EQ(fixture.series(kAbort), 0);
}

TEST(Stream, BackendThreadAndStrandTogether) {
  Fixture fixture("", 5000);
  const auto exchange = fixture.post(
      kCompletions,
      R"({"prompt":"a","stream":true,"max_tokens":2000,"n":2,"return_token_ids":true})");
  UpdateSink sink = fixture.backend.requests[0].sink;
  std::thread backend([&] {
    fixture.backend.prompt(0);
    for (int i = 0; i < 1000; ++i) {
      fixture.backend.text(0, 0, "a");
      fixture.backend.text(0, 1, "b");
    }
    fixture.backend.text(0, 0, "", FinishReason::kStop);
    fixture.backend.text(0, 1, "", FinishReason::kStop);
  });
  while (!exchange->ended) exchange->run_posted();
  backend.join();
  EXPECT_EQ(text_of(exchange->events(), 0), std::string(1000, 'a'));
  EXPECT_EQ(text_of(exchange->events(), 1), std::string(1000, 'b'));
  EXPECT_TRUE(exchange->done_sent());
}

}  // namespace
}  // namespace baton::frontend
