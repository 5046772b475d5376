// Every route but generation: shapes, keys, headers.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "frontend/frontend_test_support.h"

namespace baton::frontend {
namespace {

using nlohmann::json;

TEST(Routes, ModelsListNamesAndContext) {
  Fixture fixture;
  const json body = fixture.get("/v1/models")->json();
  EXPECT_EQ(body["object"], "list");
  ASSERT_EQ(body["data"].size(), 2U);
  EXPECT_EQ(body["data"][0]["id"], "tiny");
  EXPECT_EQ(body["data"][0]["object"], "model");
  EXPECT_EQ(body["data"][0]["max_model_len"], 100);
  EXPECT_EQ(body["data"][0]["created"], 77);
  EXPECT_EQ(body["data"][1]["root"], "tiny");
}

TEST(Routes, ModelByName) {
  Fixture fixture;
  const json body = fixture.get("/v1/models/alias")->json();
  EXPECT_EQ(body["id"], "alias");
  EXPECT_EQ(body["max_model_len"], 100);
  EXPECT_EQ(fixture.get("/v1/models/other")->response->status, 404);
}

TEST(Routes, TokenizeText) {
  Fixture fixture;
  const json with = fixture.post("/tokenize", R"({"prompt":"hi"})")->json();
  EXPECT_EQ(with["tokens"], json({256, 'h', 'i'}));
  EXPECT_EQ(with["count"], 3);
  EXPECT_EQ(with["max_model_len"], 100);
  EXPECT_TRUE(with.contains("token_strs") && with["token_strs"].is_null());
  const json without =
      fixture
          .post("/tokenize",
                R"({"prompt":"hi<x>","add_special_tokens":false,"return_token_strs":true})")
          ->json();
  EXPECT_EQ(without["tokens"], json({'h', 'i', 258}));
  EXPECT_EQ(without["token_strs"], json({"_h", "_i", "_<x>"}));
  EXPECT_EQ(
      fixture.post("/tokenize", R"({"prompt":"","add_special_tokens":false})")->json()["count"], 0);
}

TEST(Routes, TokenizeChat) {
  Fixture fixture;
  const std::string messages = R"("messages":[{"role":"user","content":"a"}])";
  const json body = fixture.post("/tokenize", "{" + messages + "}")->json();
  EXPECT_EQ(body["count"], std::string("user:a\nassistant:").size());
  const json bare =
      fixture.post("/tokenize", "{" + messages + R"(,"add_generation_prompt":false})")->json();
  EXPECT_EQ(bare["count"], std::string("user:a\n").size());
  const json cut =
      fixture.post("/tokenize", "{" + messages + R"(,"continue_final_message":true})")->json();
  EXPECT_EQ(cut["count"], std::string("user:a").size());
}

TEST(Routes, DetokenizeShowsSpecialTokens) {
  Fixture fixture;
  EXPECT_EQ(fixture.post("/detokenize", R"({"tokens":[256,104,105]})")->json()["prompt"], "<s>hi");
  EXPECT_EQ(fixture.post("/detokenize", R"({"tokens":[]})")->json()["prompt"], "");
  EXPECT_EQ(fixture.post("/detokenize", R"({"tokens":[226,130,172,226]})")->json()["prompt"],
            "\u20AC\uFFFD");
}

TEST(Routes, HealthAndReadyFollowTheBackend) {
  Fixture fixture;
  EXPECT_EQ(fixture.get("/health")->response->status, 200);
  EXPECT_EQ(fixture.get("/ready")->response->status, 200);
  fixture.backend.state = {.alive = true, .ready = false, .reason = "draining"};
  EXPECT_EQ(fixture.get("/health")->response->status, 200);
  EXPECT_EQ(fixture.get("/ready")->response->status, 503);
  fixture.backend.state = {.alive = false, .ready = true, .reason = "no step for 30 s"};
  const auto sick = fixture.get("/health");
  EXPECT_EQ(sick->response->status, 503);
  EXPECT_NE(sick->json()["error"]["message"].get<std::string>().find("no step for 30 s"),
            std::string::npos);
  EXPECT_EQ(fixture.get("/ready")->response->status, 503);
}

TEST(Routes, MetricsExistFromTheStart) {
  Fixture fixture;
  const auto answer = fixture.get("/metrics");
  EXPECT_EQ(answer->response->status, 200);
  EXPECT_TRUE(answer->response->content_type.starts_with("text/plain; version=0.0.4"));
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    EXPECT_EQ(fixture.series(
                  std::string("vllm:request_success_total{model_name=\"tiny\",finished_reason=\"") +
                  reason + "\"}"),
              0);
  }
  for (const char* name :
       {"time_to_first_token_seconds", "inter_token_latency_seconds",
        "request_time_per_output_token_seconds", "e2e_request_latency_seconds"}) {
    EXPECT_EQ(fixture.series(std::string("vllm:") + name + "_count{model_name=\"tiny\"}"), 0);
  }
}

TEST(Routes, VersionIsWhatTheProcessSays) {
  Fixture fixture;
  EXPECT_EQ(fixture.get("/version")->json(), json({{"version", "0"}}));
}

net::HttpRequest with_key(const std::string& path, const std::string& authorization) {
  return {.method = "GET",
          .path = path,
          .query = {},
          .headers = {{"authorization", authorization}},
          .body = {}};
}

TEST(Routes, KeyGuardsAllButProbes) {
  Fixture fixture("secret");
  for (const char* path : {"/health", "/ready", "/metrics"}) {
    EXPECT_EQ(fixture.get(path)->response->status, 200) << path;
  }
  for (const char* path : {"/v1/models", "/version", "/nothing", "/v1/models/tiny"}) {
    EXPECT_EQ(fixture.get(path)->response->status, 401) << path;
  }
  EXPECT_EQ(fixture.post("/v1/completions", R"({"prompt":"hi"})")->response->status, 401);
  for (const char* wrong : {"", "secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets",
                            "Bearer Secret", "Basic secret", "Bearer secretsecret"}) {
    const auto answer = fixture.send(with_key("/v1/models", wrong));
    EXPECT_EQ(answer->response->status, 401) << wrong;
    EXPECT_EQ(answer->json()["error"]["type"], "authentication_error");
    EXPECT_EQ(answer->response->headers.at("WWW-Authenticate"), "Bearer");
  }
  EXPECT_EQ(fixture.send(with_key("/v1/models", "Bearer secret"))->response->status, 200);
  EXPECT_EQ(fixture.send(with_key("/v1/models", "bearer secret"))->response->status, 200);
}

TEST(Routes, EveryAnswerHasARequestIdOfItsOwn) {
  Fixture fixture("secret");
  const std::string key = "Bearer secret";
  std::set<std::string> ids;
  int n_answers = 0;
  const auto check = [&](net::HttpRequest request, int status) {
    SCOPED_TRACE(request.method + " " + request.path);
    const auto exchange = fixture.send(std::move(request));
    ASSERT_TRUE(exchange->response.has_value());
    EXPECT_EQ(exchange->response->status, status);
    ASSERT_TRUE(exchange->response->headers.contains("X-Request-Id"));
    const std::string id = exchange->response->headers.at("X-Request-Id");
    EXPECT_EQ(id.find("mine"), id.npos);
    ids.insert(id);
    ++n_answers;
  };
  for (const char* path :
       {"/v1/models", "/v1/models/tiny", "/health", "/ready", "/metrics", "/version"}) {
    net::HttpRequest request = with_key(path, key);
    request.headers["x-request-id"] = "mine";
    check(request, 200);
  }
  check(with_key("/v1/models", "Bearer wrong"), 401);
  check(with_key("/nothing", key), 404);
  check(with_key("/v1/models/other", key), 404);
  check(with_key("/tokenize", key), 405);
  for (const auto& [path, body, status] : {std::tuple{"/tokenize", R"({"prompt":"a"})", 200},
                                           {"/detokenize", R"({"tokens":[97]})", 200},
                                           {"/tokenize", "{}", 400},
                                           {"/v1/completions", "{}", 400}}) {
    net::HttpRequest request = with_key(path, key);
    request.method = "POST";
    request.body = body;
    check(request, 415);
    request.headers["content-type"] = "application/json";
    check(request, status);
  }
  EXPECT_EQ(ids.size(), static_cast<size_t>(n_answers)) << "an id was given twice";
}

TEST(Routes, ContentTypeWithCharsetIsFine) {
  Fixture fixture;
  const auto answer =
      fixture.send({.method = "POST",
                    .path = "/tokenize",
                    .query = {},
                    .headers = {{"content-type", "Application/JSON ; charset=utf-8"}},
                    .body = R"({"prompt":"a"})"});
  EXPECT_EQ(answer->response->status, 200);
}

TEST(Routes, TemplateErrorIs400) {
  Fixture fixture;
  const auto answer =
      fixture.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"refuse"}]})");
  EXPECT_EQ(answer->response->status, 400);
  EXPECT_EQ(answer->json()["error"]["message"], "the template refuses");
  EXPECT_EQ(answer->json()["error"]["param"], "messages");
}

TEST(Routes, ExtraRoutesGetWhatPassesTheChecks) {
  std::vector<std::shared_ptr<net::HttpExchange>> held;
  const auto hold = [&](std::shared_ptr<net::HttpExchange> e) { held.push_back(std::move(e)); };
  Fixture fixture("secret", 100,
                  {{.method = "GET", .path = "/metrics", .open = true, .handler = hold},
                   {.method = "POST", .path = "/extra", .handler = hold},
                   {.method = "GET", .path = "/plans/", .prefix = true, .handler = hold}});
  const auto status_of = [&](const char* method, const char* path, bool key, bool json = true) {
    net::HttpRequest request{
        .method = method, .path = path, .query = {}, .headers = {}, .body = {}};
    if (key) request.headers["authorization"] = "Bearer secret";
    if (json) request.headers["content-type"] = "application/json";
    const auto exchange = fixture.send(std::move(request));
    return exchange->response ? exchange->response->status : 0;
  };
  EXPECT_EQ(status_of("GET", "/metrics", false), 0);
  EXPECT_EQ(status_of("POST", "/extra", true), 0);
  EXPECT_EQ(status_of("GET", "/plans/a/b", true), 0);
  EXPECT_EQ(held.size(), 3U);
  EXPECT_EQ(status_of("POST", "/extra", false), 401);
  EXPECT_EQ(status_of("POST", "/extra", true, false), 415);
  EXPECT_EQ(status_of("GET", "/extra", true), 405);
  EXPECT_EQ(status_of("GET", "/plans/", true), 404);
  EXPECT_EQ(status_of("POST", "/extra/more", true), 404);
  EXPECT_EQ(held.size(), 3U);
  held[2]->respond({.status = 418, .content_type = {}, .headers = {}, .body = {}});
}

TEST(Routes, IncompleteOptionsAreRefused) {
  Fixture fixture;
  EXPECT_FALSE(
      Frontend::create({}, {fixture.backend, fixture.registry, fixture.clock}).has_value());
}

}  // namespace
}  // namespace baton::frontend
