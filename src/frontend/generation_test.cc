// Unstreamed generation: what reaches the backend, what comes back, what is counted.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "frontend/frontend_test_support.h"

namespace baton::frontend {
namespace {

using nlohmann::json;

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChat = "/v1/chat/completions";

TEST(Generation, CompletionDefaultsReachTheBackend) {
  Fixture fixture;
  fixture.post(kCompletions, R"({"prompt":"hi"})");
  ASSERT_EQ(fixture.backend.requests.size(), 1U);
  const TokenRequest& request = fixture.backend.requests[0].request;
  EXPECT_EQ(request.prompt, (std::vector<TokenId>{256, 'h', 'i'}));
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_EQ(request.n_choices, 1);
  EXPECT_EQ(request.sampling.temperature, 1.0F);
  EXPECT_EQ(request.sampling.top_p, 1.0F);
  EXPECT_EQ(request.eos_ids, std::vector<TokenId>{257});
  EXPECT_FALSE(request.n_logprobs.has_value());
  EXPECT_FALSE(request.n_prompt_logprobs.has_value());
  EXPECT_EQ(request.arrival_ns, fixture.clock.ns);
}

TEST(Generation, EveryFieldReachesTheBackend) {
  Fixture fixture;
  fixture.post(kCompletions, R"({"prompt":[1,2],"max_tokens":9,"min_tokens":2,"n":3,"best_of":3,
    "temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"seed":-1,"presence_penalty":1,
    "frequency_penalty":-1,"repetition_penalty":1.5,"logit_bias":{"5":-100,"6":2.5},
    "stop_token_ids":[8],"ignore_eos":true,"logprobs":4,"priority":-3,"user":"u","store":true,
    "metadata":{"a":"b"},"unknown":1})");
  ASSERT_EQ(fixture.backend.requests.size(), 1U);
  const TokenRequest& request = fixture.backend.requests[0].request;
  EXPECT_EQ(request.prompt, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_EQ(request.min_tokens, 2);
  EXPECT_EQ(request.n_choices, 3);
  const SamplingParams& sampling = request.sampling;
  EXPECT_EQ(sampling.temperature, 0.5F);
  EXPECT_EQ(sampling.top_p, 0.25F);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.min_p, 0.125F);
  EXPECT_EQ(sampling.seed, ~uint64_t{0});
  EXPECT_EQ(sampling.presence_penalty, 1.0F);
  EXPECT_EQ(sampling.frequency_penalty, -1.0F);
  EXPECT_EQ(sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(sampling.logit_bias, (std::vector<std::pair<TokenId, float>>{{5, -100.0F}, {6, 2.5F}}));
  EXPECT_EQ(request.stop_ids, std::vector<TokenId>{8});
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.n_logprobs, 4);
  EXPECT_EQ(request.priority, -3);
}

TEST(Generation, SeedsOfRequestsWithoutOneDiffer) {
  Fixture fixture;
  fixture.post(kCompletions, R"({"prompt":"a"})");
  fixture.post(kCompletions, R"({"prompt":"a","seed":null})");
  EXPECT_NE(fixture.backend.requests[0].request.sampling.seed,
            fixture.backend.requests[1].request.sampling.seed);
  EXPECT_NE(fixture.backend.requests[0].request.id, fixture.backend.requests[1].request.id);
}

TEST(Generation, LabelsAreTheIdsThatTheClientSees) {
  Fixture fixture;
  const auto exchange = fixture.post(
      kCompletions, R"({"prompt":["a","b"],"echo":true,"max_tokens":1,"stream":true})");
  const std::string label = fixture.backend.requests[0].request.label;
  EXPECT_EQ(label, exchange->response->headers.at("X-Request-Id"));
  EXPECT_TRUE(label.starts_with("cmpl-")) << label;
  EXPECT_EQ(fixture.backend.requests[1].request.label, label + "-1");
}

TEST(Generation, EqualPromptsOfAListHaveSeedsOfTheirOwnUnlessTheClientGaveOne) {
  Fixture fixture;
  fixture.post(kCompletions, R"({"prompt":["a","a","a"]})");
  fixture.post(kCompletions, R"({"prompt":["a","a"],"seed":7})");
  std::set<uint64_t> seeds;
  for (size_t i = 0; i < 3; ++i) seeds.insert(fixture.backend.requests[i].request.sampling.seed);
  EXPECT_EQ(seeds.size(), 3U);
  EXPECT_EQ(fixture.backend.requests[3].request.sampling.seed, 7U);
  EXPECT_EQ(fixture.backend.requests[4].request.sampling.seed, 7U);
}

TEST(Generation, CompletionBody) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"hi","model":"alias"})");
  fixture.backend.prompt(0, 2);
  fixture.backend.text(0, 0, "yes");
  fixture.backend.text(0, 0, "!", FinishReason::kStop);
  EXPECT_FALSE(exchange->response.has_value()) << "answered on the backend's thread";
  exchange->run_posted();
  EXPECT_EQ(exchange->response->status, 200);
  EXPECT_EQ(exchange->response->content_type, "application/json");
  const json body = exchange->json();
  EXPECT_EQ(exchange->response->headers.at("X-Request-Id"), body["id"]);
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["created"], 1234);
  EXPECT_EQ(body["model"], "alias");
  EXPECT_EQ(body["system_fingerprint"], "fp_test");
  EXPECT_EQ(body["choices"], json::parse(R"([{"index":0,"text":"yes!","logprobs":null,
                                             "finish_reason":"stop","stop_reason":null}])"));
  EXPECT_EQ(body["usage"], json::parse(R"({"prompt_tokens":3,"completion_tokens":5,
                             "total_tokens":8,"prompt_tokens_details":{"cached_tokens":2}})"));
}

TEST(Generation, ChatBodyAndDefaults) {
  Fixture fixture;
  const auto exchange = fixture.post(
      kChat, R"({"messages":[{"role":"developer","content":"s"},{"role":"user","content":[
                {"type":"text","text":"a"},{"type":"text","text":"b"}]}],"tools":[],
                "tool_choice":"none","response_format":{"type":"text"}})");
  ASSERT_EQ(fixture.backend.requests.size(), 1U);
  const TokenRequest& request = fixture.backend.requests[0].request;
  const std::string rendered = "system:s\nuser:a\nb\nassistant:";
  EXPECT_EQ(std::string(request.prompt.begin(), request.prompt.end()), rendered);
  EXPECT_EQ(request.max_tokens, 100 - static_cast<int>(rendered.size()));
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "hey", FinishReason::kLength);
  exchange->run_posted();
  const json body = exchange->json();
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(
      body["choices"],
      json::parse(R"([{"index":0,"message":{"role":"assistant","content":"hey","refusal":null},
                            "logprobs":null,"finish_reason":"length","stop_reason":null}])"));
}

TEST(Generation, ListOfPromptsTimesN) {
  Fixture fixture;
  const auto exchange =
      fixture.post(kCompletions, R"({"prompt":["a","bb"],"n":2,"return_token_ids":true})");
  ASSERT_EQ(fixture.backend.requests.size(), 2U);
  // Out of order on purpose.
  fixture.backend.prompt(1, 1);
  fixture.backend.text(1, 1, "Z", FinishReason::kLength);
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "W", FinishReason::kLength);
  fixture.backend.text(0, 1, "X", FinishReason::kLength);
  exchange->run_posted();
  EXPECT_FALSE(exchange->response.has_value());
  fixture.backend.text(1, 0, "Y", FinishReason::kStop);
  exchange->run_posted();
  const json body = exchange->json();
  ASSERT_EQ(body["choices"].size(), 4U);
  std::string texts;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    texts += body["choices"][i]["text"].get<std::string>();
  }
  EXPECT_EQ(texts, "WXYZ");
  EXPECT_EQ(body["choices"][2]["token_ids"], json({'Y', 257}));
  EXPECT_EQ(body["choices"][0]["prompt_token_ids"], json({256, 'a'}));
  EXPECT_EQ(body["choices"][3]["prompt_token_ids"], json({256, 'b', 'b'}));
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(body["usage"]["completion_tokens"], 5);
}

TEST(Generation, StopStringAcrossTokens) {
  Fixture fixture;
  const auto exchange = fixture.post(
      kCompletions, R"({"prompt":"a","stop":["END","xyz"],"return_token_ids":true,"logprobs":0})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "so E");
  fixture.backend.text(0, 0, "N");
  exchange->run_posted();
  EXPECT_FALSE(fixture.backend.requests[0].cancelled);
  fixture.backend.text(0, 0, "Dropped");
  fixture.backend.text(0, 0, "late");
  exchange->run_posted();
  EXPECT_TRUE(fixture.backend.requests[0].cancelled);
  const json choice = exchange->json()["choices"][0];
  EXPECT_EQ(choice["text"], "so ");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], "END");
  EXPECT_EQ(choice["token_ids"], json({'s', 'o', ' ', 'E', 'N', 'D'}));
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), 6U);
  EXPECT_EQ(exchange->json()["usage"]["completion_tokens"], 6);
  EXPECT_EQ(fixture.series("vllm:generation_tokens_total{model_name=\"tiny\"}"), 6);
}

TEST(Generation, StopStringEndsOnlyItsChoice) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"a","n":2,"stop":"#"})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 1, "b#c");
  exchange->run_posted();
  EXPECT_EQ(fixture.backend.requests[0].cancelled_choices, std::set<int>{1});
  EXPECT_FALSE(fixture.backend.requests[0].cancelled);
  fixture.backend.text(0, 0, "a", FinishReason::kLength);
  exchange->run_posted();
  const json choices = exchange->json()["choices"];
  EXPECT_EQ(choices[0]["text"], "a");
  EXPECT_EQ(choices[0]["finish_reason"], "length");
  EXPECT_EQ(choices[1]["text"], "b");
  EXPECT_EQ(choices[1]["finish_reason"], "stop");
}

TEST(Generation, IncompleteCharactersAreFlushedAtTheEnd) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"a","stop":"END"})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "so EN\xE2\x82", FinishReason::kLength);
  exchange->run_posted();
  EXPECT_EQ(exchange->json()["choices"][0]["text"], "so EN\uFFFD");
  EXPECT_TRUE(exchange->json()["choices"][0]["stop_reason"].is_null());
}

TEST(Generation, TheBeginningOfAStopStringIsTextAtTheEnd) {
  for (const FinishReason reason : {FinishReason::kLength, FinishReason::kStop}) {
    Fixture fixture;
    const auto exchange = fixture.post(kCompletions, R"({"prompt":"a","stop":"END"})");
    fixture.backend.prompt(0);
    fixture.backend.text(0, 0, "so EN", reason);
    exchange->run_posted();
    EXPECT_EQ(exchange->json()["choices"][0]["text"], "so EN");
  }
}

TEST(Generation, StopStringsWaitForMinTokens) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"a","stop":"b","min_tokens":3})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "abcdb!", FinishReason::kLength);
  exchange->run_posted();
  EXPECT_EQ(exchange->json()["choices"][0]["text"], "abcd");
}

TEST(Generation, StopIdIsReportedAndHasNoText) {
  Fixture fixture;
  const auto exchange = fixture.post(
      kCompletions, R"({"prompt":"a","stop_token_ids":[120],"return_token_ids":true})");
  fixture.backend.prompt(0);
  fixture.backend.event(0, {.choice = 0,
                            .tokens = {'o', 'k', 'x'},
                            .logprobs = {},
                            .finish = FinishReason::kStop,
                            .stop_id = 120,
                            .error = {}});
  exchange->run_posted();
  const json choice = exchange->json()["choices"][0];
  EXPECT_EQ(choice["text"], "ok");
  EXPECT_EQ(choice["stop_reason"], 120);
  EXPECT_EQ(choice["token_ids"], json({'o', 'k', 'x'}));
}

TEST(Generation, SpecialTokensAreSkippedUnlessWanted) {
  for (const bool skip : {true, false}) {
    Fixture fixture;
    const auto exchange = fixture.post(
        kCompletions, skip ? R"({"prompt":"a"})" : R"({"prompt":"a","skip_special_tokens":false})");
    fixture.backend.prompt(0);
    fixture.backend.event(0, {.choice = 0,
                              .tokens = {'o', 258, 'k'},
                              .logprobs = {},
                              .finish = FinishReason::kLength,
                              .stop_id = {},
                              .error = {}});
    exchange->run_posted();
    EXPECT_EQ(exchange->json()["choices"][0]["text"], skip ? "ok" : "o<x>k");
  }
}

TEST(Generation, LegacyLogprobs) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"p","logprobs":2})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0,
                       "\xE2\x82\xAC"
                       "b",
                       FinishReason::kLength);
  exchange->run_posted();
  const json logprobs = exchange->json()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"\uFFFD", "\uFFFD", "\uFFFD", "b"}));
  EXPECT_EQ(logprobs["token_logprobs"], json({-0.25, -0.25, -0.25, -0.25}));
  EXPECT_EQ(logprobs["text_offset"], json({0, 0, 0, 1}));
  EXPECT_EQ(logprobs["top_logprobs"][3], json::parse(R"({"b":-0.25,"B":-0.5})"));
}

TEST(Generation, ChatLogprobs) {
  Fixture fixture;
  const auto exchange = fixture.post(
      kChat, R"({"messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":2})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "z", FinishReason::kStop);
  exchange->run_posted();
  const json content = exchange->json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(content[0], json::parse(R"({"token":"z","logprob":-0.25,"bytes":[122],"top_logprobs":[
      {"token":"z","logprob":-0.25,"bytes":[122]},{"token":"B","logprob":-0.5,"bytes":[66]}]})"));
  EXPECT_EQ(content[1]["token"], "</s>");
}

TEST(Generation, TokensAsTokenIds) {
  Fixture fixture;
  const auto exchange = fixture.post(
      kCompletions, R"({"prompt":"p","logprobs":1,"return_tokens_as_token_ids":true})");
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "z", FinishReason::kLength);
  exchange->run_posted();
  const json logprobs = exchange->json()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"token_id:122"}));
  EXPECT_EQ(logprobs["top_logprobs"][0], json::parse(R"({"token_id:122":-0.25})"));
}

TEST(Generation, EchoWithLogprobs) {
  Fixture fixture;
  const auto exchange =
      fixture.post(kCompletions, R"({"prompt":"p<x>q","echo":true,"logprobs":1,"max_tokens":1})");
  EXPECT_EQ(fixture.backend.requests[0].request.n_prompt_logprobs, 1);
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "z", FinishReason::kLength);
  exchange->run_posted();
  const json choice = exchange->json()["choices"][0];
  EXPECT_EQ(choice["text"], "p<x>qz");
  const json logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"<s>", "p", "<x>", "q", "z"}));
  EXPECT_EQ(logprobs["token_logprobs"], json({nullptr, -1, -2, -3, -0.25}));
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["top_logprobs"][1], json::parse(R"({"A":-0.5,"p":-1.0})"));
  EXPECT_EQ(logprobs["text_offset"], json({0, 0, 1, 4, 5}));
}

TEST(Generation, EchoOfThePromptAloneNeedsNoBackend) {
  Fixture fixture;
  const auto exchange = fixture.post(
      kCompletions, R"({"prompt":[[256,97,98],[104,105]],"echo":true,"max_tokens":0,"n":2})");
  exchange->run_posted();
  EXPECT_TRUE(fixture.backend.requests.empty());
  const json body = exchange->json();
  ASSERT_EQ(body["choices"].size(), 4U);
  EXPECT_EQ(body["choices"][1]["text"], "ab");
  EXPECT_EQ(body["choices"][2]["text"], "hi");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
}

TEST(Generation, EchoOfThePromptWithLogprobsAlone) {
  Fixture fixture;
  const auto exchange =
      fixture.post(kCompletions, R"({"prompt":"ab","echo":true,"max_tokens":0,"logprobs":0})");
  ASSERT_EQ(fixture.backend.requests.size(), 1U);
  EXPECT_EQ(fixture.backend.requests[0].request.max_tokens, 0);
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "", FinishReason::kLength);
  exchange->run_posted();
  EXPECT_EQ(exchange->json()["choices"][0]["logprobs"]["tokens"], json({"<s>", "a", "b"}));
}

TEST(Generation, BackendRefusals) {
  const std::pair<ErrorCode, int> cases[] = {{ErrorCode::kExhausted, 429},
                                             {ErrorCode::kUnavailable, 503},
                                             {ErrorCode::kInvalidArgument, 400},
                                             {ErrorCode::kInternal, 500}};
  for (const auto& [code, status] : cases) {
    for (const char* stream : {"true", "false"}) {
      Fixture fixture;
      fixture.backend.answers = {Status{}, fail(code, "because")};
      const auto exchange = fixture.post(
          kCompletions, std::string(R"({"prompt":["a","b","c"],"stream":)") + stream + "}");
      ASSERT_TRUE(exchange->response.has_value());
      EXPECT_FALSE(exchange->streaming);
      EXPECT_EQ(exchange->response->status, status);
      EXPECT_EQ(exchange->response->headers.contains("Retry-After"),
                status == 429 || status == 503);
      EXPECT_EQ(exchange->json()["error"]["message"], "because");
      ASSERT_EQ(fixture.backend.requests.size(), 1U);
      EXPECT_TRUE(fixture.backend.requests[0].cancelled) << "the first prompt was left running";
      EXPECT_EQ(fixture.series(
                    "vllm:request_success_total{model_name=\"tiny\",finished_reason=\"error\"}"),
                1);
    }
  }
}

TEST(Generation, ErrorWhileRunning) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":["a","b"]})");
  fixture.backend.event(1, {.choice = 0,
                            .tokens = {},
                            .logprobs = {},
                            .finish = FinishReason::kError,
                            .stop_id = {},
                            .error = "the engine died"});
  exchange->run_posted();
  EXPECT_EQ(exchange->response->status, 500);
  EXPECT_EQ(exchange->json()["error"]["message"], "the engine died");
  EXPECT_TRUE(fixture.backend.requests[0].cancelled);
}

TEST(Generation, AnErrorWhileRunningBringsItsStatus) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"a"})");
  fixture.backend.event(0, {.choice = 0,
                            .tokens = {},
                            .logprobs = {},
                            .finish = FinishReason::kError,
                            .stop_id = {},
                            .error = "no engine came back",
                            .code = ErrorCode::kUnavailable});
  exchange->run_posted();
  EXPECT_EQ(exchange->response->status, 503);
  EXPECT_EQ(exchange->json()["error"]["message"], "no engine came back");
}

TEST(Generation, ServerSideCancelIs503) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"a"})");
  fixture.backend.text(0, 0, "", FinishReason::kCancelled);
  exchange->run_posted();
  EXPECT_EQ(exchange->response->status, 503);
  EXPECT_EQ(exchange->json()["error"]["type"], "server_error");
}

TEST(Generation, GivenUpIs503WithTheReason) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"a"})");
  fixture.backend.event(0, {.choice = 0,
                            .tokens = {},
                            .logprobs = {},
                            .finish = FinishReason::kGivenUp,
                            .stop_id = {},
                            .error = "preempted"});
  exchange->run_posted();
  EXPECT_EQ(exchange->response->status, 503);
  EXPECT_EQ(exchange->json()["error"]["message"], "the engine gave this request up: preempted");
}

TEST(Generation, IdsAreOursAndTheLabelIsNot) {
  Fixture fixture;
  net::HttpRequest request{
      .method = "POST",
      .path = kCompletions,
      .query = {},
      .headers = {{"content-type", "application/json"}, {"x-request-id", "mine\n"}},
      .body = R"({"prompt":"a","echo":true,"max_tokens":0})"};
  const auto first = fixture.send(request);
  const auto second = fixture.send(request);
  first->run_posted();
  second->run_posted();
  EXPECT_NE(first->json()["id"], second->json()["id"]);
  EXPECT_EQ(first->response->headers.at("X-Request-Id").find("mine"), std::string::npos);
}

TEST(Generation, Metrics) {
  Fixture fixture;
  const auto exchange = fixture.post(kCompletions, R"({"prompt":"ab"})");
  fixture.clock.ns += 2'000'000'000;
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "x");
  exchange->run_posted();
  fixture.clock.ns += 1'000'000'000;
  fixture.backend.text(0, 0, "yz", FinishReason::kLength);
  exchange->run_posted();
  const auto value = [&](const std::string& name) {
    return fixture.series("vllm:" + name + "{model_name=\"tiny\"}");
  };
  EXPECT_EQ(value("prompt_tokens_total"), 3);
  EXPECT_EQ(value("generation_tokens_total"), 3);
  EXPECT_EQ(value("time_to_first_token_seconds_count"), 1);
  EXPECT_DOUBLE_EQ(value("time_to_first_token_seconds_sum"), 2);
  EXPECT_EQ(value("inter_token_latency_seconds_count"), 2);
  EXPECT_DOUBLE_EQ(value("inter_token_latency_seconds_sum"), 1);
  EXPECT_EQ(value("request_time_per_output_token_seconds_count"), 1);
  EXPECT_DOUBLE_EQ(value("request_time_per_output_token_seconds_sum"), 0.5);
  EXPECT_EQ(value("e2e_request_latency_seconds_count"), 1);
  EXPECT_DOUBLE_EQ(value("e2e_request_latency_seconds_sum"), 3);
  EXPECT_EQ(
      fixture.series("vllm:request_success_total{model_name=\"tiny\",finished_reason=\"length\"}"),
      1);
  EXPECT_EQ(
      fixture.series("vllm:request_success_total{model_name=\"tiny\",finished_reason=\"stop\"}"),
      0);
}

}  // namespace
}  // namespace baton::frontend
