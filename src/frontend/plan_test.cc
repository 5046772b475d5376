// What is refused before a backend hears of it because of the context and the vocabulary.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "frontend/frontend_test_support.h"

namespace baton::frontend {
namespace {

using nlohmann::json;

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChat = "/v1/chat/completions";

TEST(Plan, ContextRules) {
  Fixture fixture;
  const auto over = fixture.post(kCompletions, R"({"prompt":"ab","max_tokens":98})");
  const std::string message = over->json()["error"]["message"];
  for (const char* number : {"100", "3", "98"}) {
    EXPECT_NE(message.find(number), std::string::npos) << message;
  }
  EXPECT_EQ(fixture.post(kCompletions, R"({"prompt":"ab","max_tokens":97})")->response,
            std::nullopt);
  const std::string long_prompt(95, 'a');
  fixture.post(kCompletions, R"({"prompt":")" + long_prompt + "\"}");
  EXPECT_EQ(fixture.backend.requests.back().request.max_tokens, 4)
      << "a default is cut to the room";
  const auto full = fixture.post(kCompletions, R"({"prompt":")" + long_prompt + "aaaa\"}");
  EXPECT_EQ(full->response->status, 400);
  EXPECT_EQ(full->json()["error"]["param"], "prompt");
  EXPECT_EQ(fixture.backend.requests.size(), 2U);
}

TEST(Plan, ATextTooLongByItsBytesIsRefusedWithAllThreeNumbers) {
  Fixture fixture;
  fixture.codec->before_encode = [](std::string_view) { ADD_FAILURE() << "it was tokenised"; };
  const std::string text(1000, 'a');  // 250 tokens at least
  const std::string chat = R"({"messages":[{"role":"user","content":")" + text + R"("}])";
  const std::tuple<const char*, std::string, const char*> cases[] = {
      {kCompletions, R"({"prompt":")" + text + R"(","max_tokens":7})", "7"},
      {kCompletions, R"({"prompt":")" + text + "\"}", "1"},
      {kChat, chat + R"(,"max_tokens":7})", "7"},
      {kChat, chat + "}", "1"}};
  for (const auto& [path, body, max_tokens] : cases) {
    const auto exchange = fixture.post(path, body);
    EXPECT_EQ(exchange->response->status, 400);
    const std::string message = exchange->json()["error"]["message"];
    for (const std::string& part :
         {std::string("context is 100 tokens"), std::string("at least 25"),
          std::string("max_tokens is ") + max_tokens + ":"}) {
      EXPECT_NE(message.find(part), message.npos) << message;
    }
  }
}

TEST(Plan, ConstraintsThatLeaveNoTokenAreRefused) {
  Fixture fixture;
  // All of the vocabulary but the EOS, which min_tokens forbids as well.
  json stops = json::array();
  for (TokenId id = 0; id < ByteCodec::kVocab; ++id) {
    if (id != ByteCodec::kEos) stops.push_back(id);
  }
  json body = {{"prompt", "a"}, {"min_tokens", 1}, {"stop_token_ids", stops}};
  const auto refused = fixture.post(kCompletions, body.dump());
  ASSERT_TRUE(refused->response.has_value());
  EXPECT_EQ(refused->response->status, 400);
  EXPECT_EQ(refused->json()["error"]["param"], "stop_token_ids");
  EXPECT_NE(refused->json()["error"]["message"].get<std::string>().find("min_tokens"),
            std::string::npos);
  body["min_tokens"] = 0;
  EXPECT_FALSE(fixture.post(kCompletions, body.dump())->response.has_value());
  body["min_tokens"] = 1;
  body["stop_token_ids"][0] = 1;  // twice now: token 0 is left
  EXPECT_FALSE(fixture.post(kCompletions, body.dump())->response.has_value());
}

}  // namespace
}  // namespace baton::frontend
