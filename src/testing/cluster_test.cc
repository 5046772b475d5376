// Router, prefill and decode engines over real HTTP, in one process: whole servers over the
// stand-in model in a symmetric world of plain memory. What a client gets through any of them is
// what the lone engine says.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <nlohmann/json.hpp>
#include <random>

#include "frontend/frontend_test_support.h"
#include "router/router_server.h"
#include "server/server_test_support.h"

namespace baton::testing {
namespace {

using nlohmann::json;
using server::TestEngine;

/// A client of one server.
class Client {
 public:
  explicit Client(const std::string& origin) {
    net::HttpClientOptions options;
    options.origin = origin;
    http_ = net::HttpClient::create(options).value();
  }

  std::future<net::HttpResponse> post(const json& body) {
    return ask({.method = "POST",
                .path = "/v1/completions",
                .query = {},
                .headers = {{"content-type", "application/json"}},
                .body = body.dump()});
  }
  net::HttpResponse get(const std::string& path) {
    return ask({.method = "GET", .path = path, .query = {}, .headers = {}, .body = {}}).get();
  }
  json complete(const json& body) {
    const net::HttpResponse answer = post(body).get();
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json::parse(answer.body);
  }
  /// The client goes away.
  void cancel() { call_.cancel(); }

 private:
  std::future<net::HttpResponse> ask(net::HttpRequest request) {
    auto answer = std::make_shared<std::promise<net::HttpResponse>>();
    call_ = http_->request(
        std::move(request), std::chrono::seconds(60), [answer](Result<net::HttpResponse> result) {
          answer->set_value(
              result
                  ? std::move(*result)
                  : net::HttpResponse{.status = 0, .headers = {}, .body = result.error().message});
        });
    return answer->get_future();
  }

  std::unique_ptr<net::HttpClient> http_;
  net::HttpCall call_;
};

json body_of(int n_prompt, uint32_t seed, int n = 1) {
  return {{"model", "stand-in"}, {"prompt", random_tokens(n_prompt, seed)},
          {"max_tokens", 24},    {"n", n},
          {"seed", seed},        {"return_token_ids", true},
          {"logprobs", 2}};
}

/// Ids, logprobs and finish reasons.
json essence(const json& answer) {
  json out = json::array();
  for (const json& choice : answer.at("choices")) {
    out.push_back({choice.at("token_ids"), choice.at("logprobs").at("token_logprobs"),
                   choice.at("finish_reason")});
  }
  return out;
}

struct ClusterOptions {
  server::TestEngineOptions engine{};  ///< all but role and place
  std::shared_ptr<const frontend::TextCodec> codec = std::make_shared<frontend::ByteCodec>();
};

/// Engines by role ("PD") behind a router.
class ClusterFixture {
 public:
  explicit ClusterFixture(const std::string& roles, ClusterOptions cluster = {})
      : engine_options_(std::move(cluster.engine)) {
    router::RouterServerOptions options;
    for (const char role : roles) {
      roles_.push_back(role == 'P' ? Role::kPrefill : role == 'D' ? Role::kDecode : Role::kBoth);
      engines_.emplace_back();
      start(engines_.size() - 1);
      options.engines.push_back({std::to_string(engines_.size() - 1), engines_.back()->origin()});
    }
    options.frontend.card.names = {"stand-in"};
    options.frontend.codec = std::move(cluster.codec);
    options.http.port = 0;
    options.http.idle_timeout = engine_options_.idle_timeout;
    options.router.planner.remote_prefill_min_tokens = 32;
    options.internal_key = engine_options_.key;
    auto made = router::RouterServer::create(std::move(options), metrics);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    router = std::move(*made);
    router->start();
    client = std::make_unique<Client>(fmt::format("http://127.0.0.1:{}", router->port()));
  }

  TestEngine& engine(size_t i) { return *engines_[i]; }
  void start(size_t i) {
    server::TestEngineOptions options = engine_options_;
    options.role = roles_[i];
    options.world = &world;
    options.pe = static_cast<int>(i);
    engines_[i] = std::make_unique<TestEngine>(options);
  }
  void kill(size_t i) { engines_[i].reset(); }
  void restart(size_t i) {
    start(i);
    EXPECT_TRUE(router->set_engine(std::to_string(i), engines_[i]->origin(),
                                   {.cpus = {}, .n_restarts = 1, .state = "ready"}));
  }
  void wait_until_ready() {
    while (!router->health().ready) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void expect_idle() {
    for (const auto& engine : engines_) {
      if (!engine) continue;
      EXPECT_TRUE(engine->wait_until_idle());
    }
  }
  json plan(const json& answer) {
    const auto response = client->get("/requests/" + answer.at("id").get<std::string>() + "/plan");
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }
  /// The first attempt, with what the prefill engine measured: its answer may come after the client
  /// has its own.
  json sent_attempt(const json& answer) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    json attempt = plan(answer)["attempts"][0];
    while (!attempt["measured"].contains("sender") && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      attempt = plan(answer)["attempts"][0];
    }
    return attempt;
  }

  FakeWorld world{8};
  MetricsRegistry metrics{Labels{{"model_name", "stand-in"}}};
  std::unique_ptr<router::RouterServer> router;
  std::unique_ptr<Client> client;

 private:
  server::TestEngineOptions engine_options_;
  std::vector<Role> roles_;
  std::vector<std::unique_ptr<TestEngine>> engines_;
};

/// Stops the engine in its pass `n`. When its death opens the gate, it is too slow to get to an
/// end.
void hold(TestEngine& engine, int n) {
  const auto n_passes = std::make_shared<int>(0);  // of the engine's thread
  engine.model.on_forward = [&engine, n, n_passes](std::span<const model::SeqSlice>) {
    if (++*n_passes == n) engine.gate.set(false);
    engine.gate.pass();
    if (*n_passes >= n) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
}

/// What an engine that serves alone says.
json expected(const json& body, const server::TestEngineOptions& options = {}) {
  TestEngine alone(options);
  return essence(Client(alone.origin()).complete(body));
}

TEST(Cluster, EveryMixOfEnginesSaysWhatALoneOneSays) {
  for (const char* roles : {"B", "PD", "PPD", "PDD", "PPDD", "PDB"}) {
    SCOPED_TRACE(roles);
    ClusterFixture cluster(roles);
    for (const int n_prompt : {1, 16, 31, 32, 33, 100, 700}) {
      SCOPED_TRACE(n_prompt);
      const json body = body_of(n_prompt, static_cast<uint32_t>(n_prompt), n_prompt == 100 ? 3 : 1);
      const json answer = cluster.client->complete(body);
      EXPECT_EQ(essence(answer), expected(body));
      json attempt = cluster.plan(answer)["attempts"][0];
      if (std::string(roles).find('B') == std::string::npos) {
        EXPECT_EQ(attempt["plan"], n_prompt < 32 ? "decode_only" : "disaggregated");
        if (n_prompt >= 32) {
          attempt = cluster.sent_attempt(answer);
          EXPECT_GT(attempt["measured"]["sender"]["bytes"], 0);
        } else {
          EXPECT_FALSE(attempt["measured"].contains("sender"));
        }
      }
      EXPECT_EQ(attempt["outcome"], "finished");
    }
    cluster.expect_idle();
  }
}

TEST(Cluster, ManyAtOnce) {
  ClusterFixture cluster("PPDD");
  std::vector<json> bodies;
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::future<net::HttpResponse>> answers;
  for (uint32_t i = 0; i < 40; ++i) {
    bodies.push_back(body_of(10 + static_cast<int>(i) * 9, i, 1 + static_cast<int>(i % 2)));
    clients.push_back(
        std::make_unique<Client>(fmt::format("http://127.0.0.1:{}", cluster.router->port())));
    answers.push_back(clients.back()->post(bodies.back()));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const net::HttpResponse answer = answers[i].get();
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(essence(json::parse(answer.body)), expected(bodies[i])) << i;
  }
  cluster.expect_idle();
}

// Row 17: failures after hours idle. By then every connection but the attach streams is closed by
// its other end, whose time-out is shorter here.
TEST(Cluster, Row17_AfterIdleTimesBeyondTheConnections) {
  ClusterFixture cluster("PD", {.engine = {.idle_timeout = std::chrono::milliseconds(300)}});
  for (uint32_t i = 0; i < 3; ++i) {
    const json body = body_of(100, 20 + i);
    const json answer = cluster.client->complete(body);
    EXPECT_EQ(essence(answer), expected(body));
    const json plan = cluster.plan(answer);
    EXPECT_EQ(plan["n_attempts"], 1);
    EXPECT_EQ(plan["attempts"][0]["plan"], "disaggregated");
    cluster.expect_idle();
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    EXPECT_TRUE(cluster.router->health().ready);
  }
  for (const json& engine : json::parse(cluster.client->get("/engines").body)) {
    EXPECT_TRUE(engine["last_error"].is_null()) << engine["last_error"];
    EXPECT_EQ(engine["restarts"], 0);
  }
}

// Row 38: transfer collapses under concurrency. Each of many handoffs at once is planned once and
// moves its blocks once.
TEST(Cluster, Row38_ManyTransfersAtOnceMoveNoBlockTwice) {
  constexpr int kRequests = 48;
  ClusterFixture cluster("PPDD", {.engine = {.n_blocks = 2048}});
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::future<net::HttpResponse>> answers;
  const auto n_prompt = [](int i) { return 100 + i * 7; };
  for (int i = 0; i < kRequests; ++i) {
    clients.push_back(
        std::make_unique<Client>(fmt::format("http://127.0.0.1:{}", cluster.router->port())));
    answers.push_back(clients.back()->post(body_of(n_prompt(i), static_cast<uint32_t>(i))));
  }
  for (int i = 0; i < kRequests; ++i) {
    const net::HttpResponse got = answers[static_cast<size_t>(i)].get();
    ASSERT_EQ(got.status, 200) << got.body;
    const json answer = json::parse(got.body);
    EXPECT_EQ(essence(answer), expected(body_of(n_prompt(i), static_cast<uint32_t>(i)))) << i;
    const json attempt = cluster.sent_attempt(answer);
    EXPECT_EQ(attempt["measured"]["sender"]["bytes"],
              (n_prompt(i) - 1) / 16 * static_cast<int>(kStandInBlockBytes));
    EXPECT_EQ(cluster.plan(answer)["n_attempts"], 1);
  }
  cluster.expect_idle();
}

/// A token for each 8 bytes of text: the stand-in's contexts are short.
class WordCodec final : public frontend::ByteCodec {
 public:
  Result<std::vector<TokenId>> encode(std::string_view text, bool) const override {
    if (text.size() > 1000) ++n_big;
    std::vector<TokenId> ids;
    for (; !text.empty(); text.remove_prefix(std::min<size_t>(8, text.size()))) {
      ids.push_back(static_cast<TokenId>(std::hash<std::string_view>()(text.substr(0, 8)) % 64));
    }
    return ids;
  }
  size_t max_piece_bytes() const override { return 8; }

  mutable std::atomic<int> n_big{0};
};

// Row 39: 220 KB prompts plateau at 130 requests/s. Each is tokenised once and handed over once,
// and small ones don't wait until they are through.
TEST(Cluster, Row39_PromptsOf220Kb) {
  constexpr uint32_t kBig = 6;
  const auto codec = std::make_shared<WordCodec>();
  const server::TestEngineOptions large{.n_blocks = 16'384, .context_tokens = 32'000};
  ClusterFixture cluster("PD", {.engine = large, .codec = codec});
  const auto big = [](uint32_t i) {
    json body = body_of(1, i);
    std::mt19937 random(i);
    std::string text(220'000, ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 26);
    body["prompt"] = text;
    return body;
  };
  cluster.engine(0).gate.set(false);
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::future<net::HttpResponse>> answers;
  for (uint32_t i = 0; i < kBig; ++i) {
    clients.push_back(
        std::make_unique<Client>(fmt::format("http://127.0.0.1:{}", cluster.router->port())));
    answers.push_back(clients.back()->post(big(i)));
  }
  cluster.engine(0).gate.wait_for(1);
  for (uint32_t i = 0; i < 10; ++i) {
    const json small = body_of(20, 100 + i);
    EXPECT_EQ(essence(cluster.client->complete(small)), expected(small));
  }
  cluster.engine(0).gate.set(true);
  for (uint32_t i = 0; i < kBig; ++i) {
    const net::HttpResponse got = answers[i].get();
    ASSERT_EQ(got.status, 200) << got.body;
    const json answer = json::parse(got.body);
    json body = big(i);
    body["prompt"] = *WordCodec().encode(body["prompt"].get<std::string>(), false);
    EXPECT_EQ(essence(answer), expected(body, large)) << i;
    const json attempt = cluster.sent_attempt(answer);
    EXPECT_EQ(attempt["measured"]["sender"]["bytes"],
              (220'000 / 8 - 1) / 16 * static_cast<int>(kStandInBlockBytes));
    EXPECT_EQ(cluster.plan(answer)["n_attempts"], 1);
  }
  EXPECT_EQ(codec->n_big, kBig);
  cluster.expect_idle();
}

TEST(Cluster, EchoWithLogprobs) {
  ClusterFixture cluster("PD");
  json body = body_of(200, 3);
  body["echo"] = true;
  TestEngine alone;
  const json own = Client(alone.origin()).complete(body);
  const json answer = cluster.client->complete(body);
  EXPECT_EQ(cluster.plan(answer)["attempts"][0]["plan"], "disaggregated");
  EXPECT_EQ(answer["choices"][0]["logprobs"], own["choices"][0]["logprobs"]);
  body["max_tokens"] = 0;
  EXPECT_EQ(cluster.client->complete(body)["choices"][0]["logprobs"]["token_logprobs"],
            Client(alone.origin()).complete(body)["choices"][0]["logprobs"]["token_logprobs"]);
  cluster.expect_idle();
}

// Row 14 over the wire.
TEST(Cluster, Row14_ADecodeEngineThatDiesMidStream) {
  ClusterFixture cluster("PDD");
  json body = body_of(100, 5, 2);
  body["max_tokens"] = 500;
  TestEngine& dying = cluster.engine(1);
  hold(dying, 10);
  auto answer = cluster.client->post(body);
  dying.gate.wait_for(10);
  const std::string none = "vllm:generation_tokens_total{model_name=\"stand-in\"} 0\n";
  while (cluster.metrics.text().find(none) != std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // until the client has some
  }
  cluster.kill(1);
  const net::HttpResponse got = answer.get();
  ASSERT_EQ(got.status, 200) << got.body;
  EXPECT_EQ(essence(json::parse(got.body)), expected(body));
  const json plan = cluster.plan(json::parse(got.body));
  EXPECT_EQ(plan["n_attempts"], 3) << "one, then one for each choice";
  EXPECT_GT(plan["attempts"][1]["resumed_tokens"], 0);
  cluster.expect_idle();
}

TEST(Cluster, APrefillEngineThatDiesAndComesBack) {
  ClusterFixture cluster("PD");
  const json body = body_of(1500, 6);  // of several passes
  hold(cluster.engine(0), 1);
  auto answer = cluster.client->post(body);
  cluster.engine(0).gate.wait_for(1);
  cluster.kill(0);
  EXPECT_EQ(cluster.client->post(body_of(10, 8)).get().status, 200) << "which needs no prefill";
  EXPECT_FALSE(cluster.router->health().ready);
  EXPECT_EQ(cluster.client->get("/ready").status, 503);
  cluster.restart(0);
  cluster.wait_until_ready();
  // Nobody else can prefill: it has waited.
  const net::HttpResponse got = answer.get();
  ASSERT_EQ(got.status, 200) << got.body;
  EXPECT_EQ(essence(json::parse(got.body)), expected(body));
  EXPECT_EQ(cluster.plan(json::parse(got.body))["attempts"][1]["reason"], "uncached");
  const json again = cluster.client->complete(body_of(100, 7));
  EXPECT_EQ(cluster.plan(again)["attempts"][0]["plan"], "disaggregated");
  const json engines = json::parse(cluster.client->get("/engines").body);
  EXPECT_EQ(engines[0]["restarts"], 1);
  EXPECT_EQ(engines[0]["state"], "ready");
  cluster.expect_idle();
}

TEST(Cluster, AClientThatGoesAwayAtAnyTime) {
  ClusterFixture cluster("PD");
  for (const size_t held : {0U, 1U}) {
    SCOPED_TRACE(held);
    cluster.engine(held).gate.set(false);
    Client client(fmt::format("http://127.0.0.1:{}", cluster.router->port()));
    auto answer = client.post(body_of(200, 8));
    while (cluster.engine(held).server->engine().stats().n_running +
               cluster.engine(held).server->engine().stats().n_waiting ==
           0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    client.cancel();
    answer.get();
    cluster.engine(held).gate.set(true);
    cluster.expect_idle();
  }
  const json body = body_of(200, 8);
  EXPECT_EQ(essence(cluster.client->complete(body)), expected(body));
  cluster.expect_idle();
}

TEST(Cluster, MetricsOfAll) {
  ClusterFixture cluster("PD");
  cluster.client->complete(body_of(200, 9));
  const net::HttpResponse answer = cluster.client->get("/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.content_type.starts_with("text/plain"));
  const std::string& text = answer.body;
  for (const char* series :
       {"vllm:num_requests_running{engine=\"0\",role=\"prefill\"",
        "vllm:num_requests_running{engine=\"1\",role=\"decode\"",
        "baton_kv_transfer_bytes_total{engine=\"0\",role=\"prefill\"",
        "vllm:prompt_tokens_total{model_name=\"stand-in\"} 200",
        "baton_router_plan_total{model_name=\"stand-in\",plan=\"disaggregated\",reason="
        "\"uncached\"} 1"}) {
    EXPECT_NE(text.find(series), text.npos) << series << "\n" << text;
  }
  EXPECT_EQ(text.find("vllm:prompt_tokens_total{engine"), text.npos);
  cluster.kill(1);
  while (cluster.router->health().ready) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::string without = cluster.client->get("/metrics").body;
  EXPECT_NE(without.find("# engine 1 is left out: "), without.npos);
  EXPECT_EQ(without.find("engine=\"1\",role=\"decode\",model_name"), without.npos);
}

TEST(Cluster, PlansAndEnginesAsRoutes) {
  ClusterFixture cluster("PD");
  EXPECT_EQ(cluster.client->get("/requests/cmpl-nobody/plan").status, 404);
  EXPECT_EQ(cluster.client->get("/requests/cmpl-nobody").status, 404);
  const json engines = json::parse(cluster.client->get("/engines").body);
  ASSERT_EQ(engines.size(), 2U);
  EXPECT_EQ(engines[0]["role"], "prefill");
  EXPECT_EQ(engines[1]["role"], "decode");
  EXPECT_EQ(engines[1]["kv_blocks_total"], 1024);
  EXPECT_EQ(engines[1]["state"], "ready");
  EXPECT_EQ(engines[1]["url"], cluster.engine(1).origin());
}

TEST(Cluster, TheInternalKeyIsNeeded) {
  ClusterFixture cluster("PD", {.engine = {.key = "secret"}});
  const json body = body_of(100, 10);
  EXPECT_EQ(essence(cluster.client->complete(body)), expected(body));
  // A router with another key never attaches, and says why.
  router::RouterServerOptions options;
  options.engines = {{"0", cluster.engine(0).origin()}};
  options.frontend.card.names = {"stand-in"};
  options.frontend.codec = std::make_shared<frontend::ByteCodec>();
  options.http.port = 0;
  options.internal_key = "guess";
  options.attach_timeout = std::chrono::milliseconds(200);
  MetricsRegistry metrics;
  const auto refused = router::RouterServer::create(std::move(options), metrics);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("401"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("engine 0 at http"), std::string::npos);
}

TEST(Cluster, ADrainLetsWhatRunsFinish) {
  ClusterFixture cluster("PD");
  const json body = body_of(100, 11);
  cluster.engine(1).gate.set(false);
  auto answer = cluster.client->post(body);
  cluster.engine(1).gate.wait_for(1);
  auto drained = std::async(std::launch::async,
                            [&] { return cluster.router->drain(std::chrono::seconds(60)); });
  while (cluster.router->health().ready) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  cluster.engine(1).gate.set(true);
  EXPECT_TRUE(drained.get());
  const net::HttpResponse got = answer.get();
  ASSERT_EQ(got.status, 200) << got.body;
  EXPECT_EQ(essence(json::parse(got.body)), expected(body));
}

}  // namespace
}  // namespace baton::testing
