// Requests that a live engine refuses, what it answers, and that it goes on.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/server_test_support.h"

namespace baton::server {
namespace {

using nlohmann::json;

constexpr const char* kTo =
    R"({"pe":0,"incarnation":"1","layout_hash":"1","window_slot":0,"window_tag":"1","blocks":[0]})";

TEST(MicroservingMalformedLive, Table) {
  testing::FakeWorld world(8);
  TestEngine engine({.world = &world});
  const std::string prompt = json(testing::random_tokens(20, 1)).dump();
  const std::string send = R"({"id":"1","prompt":)" + prompt + R"(,"begin":0,"end":16,"to":)";
  const std::string prep = R"({"prompt":)" + prompt;
  const std::string start = R"({"id":"1","prompt":)" + prompt + R"(,"max_tokens":4)";
  const std::vector<std::tuple<const char*, std::string, int, const char*>> cases = {
      {api::kAttachPath, "", 400, "empty"},
      {api::kAttachPath, "[]", 400, "object"},
      {api::kAttachPath, "{}", 400, "'router'"},
      {api::kAttachPath, R"({"router":5})", 400, "'router'"},
      {api::kPrepRecvPath, "{}", 400, "'prompt'"},
      {api::kPrepRecvPath, prep + "}", 400, "'end'"},
      {api::kPrepRecvPath, prep + R"(,"end":20})", 400, "'end'"},
      {api::kPrepRecvPath, prep + R"(,"end":1e99})", 400, "'end'"},
      {api::kPrepRecvPath, R"({"prompt":[64],"end":16})", 400, "'prompt[0]'"},
      {api::kPrepRecvPath, prep + R"(,"end":16,"session":"none"})", 404, "'session'"},
      {api::kPrepRecvPath, prep + R"(,"end":16)", 400, "JSON"},
      {api::kRemoteSendPath, send + "5}", 400, "'to'"},
      {api::kRemoteSendPath, send + kTo + "}", 409, "'to.layout_hash'"},
      {api::kRemoteSendPath, send + R"({"pe":0}})", 400, "'to.incarnation'"},
      {api::kStartGeneratePath, start, 400, "JSON"},
      {api::kStartGeneratePath, start + R"(,"n_choices":1000})", 400, "'n_choices'"},
      {api::kStartGeneratePath, start + R"(,"sampling":{"top_p":7}})", 400, "'sampling.top_p'"},
      {api::kStartGeneratePath, start + R"(,"leased":{"lease":"7","begin":16}})", 404, "lease 7"},
      {api::kStartGeneratePath, start + R"(,"session":"none"})", 404, "'session'"},
      {api::kStartGeneratePath, R"({"id":"1","prompt":[1],"max_tokens":1000000})", 400, "context"},
      {api::kReleasePath, "{}", 400, "'lease'"},
      {api::kReleasePath, R"({"lease":7})", 400, "'lease'"},
      {api::kReleasePath, R"({"request":"7"})", 400, "'session'"},
      {api::kReleasePath, R"({"request":"7","session":"none"})", 404, "'session'"},
      {"/v1/microserving/other", "{}", 404, "no such route"},
  };
  for (const auto& [path, body, status, says] : cases) {
    const auto answer = engine.post(path, body);
    EXPECT_EQ(answer.status, status) << path << " " << body << "\n" << answer.body;
    const json error = json::parse(answer.body, nullptr, false);
    ASSERT_TRUE(error.is_object() && error.contains("error")) << answer.body;
    const std::string message = error["error"]["message"];
    EXPECT_NE(message.find(says), message.npos) << path << " " << body << "\n" << message;
  }
  EXPECT_EQ(engine.post(api::kStartGeneratePath, start + "}").status, 200);
  EXPECT_TRUE(engine.wait_until_idle());
}

TEST(MicroservingMalformedLive, TheKeyIsAskedFor) {
  TestEngine engine({.key = "secret"});
  EXPECT_EQ(engine.post(api::kReleasePath, R"({"lease":"7"})").status, 200);
  net::HttpClientOptions options;
  options.origin = engine.origin();
  engine.client = net::HttpClient::create(options).value();
  for (const char* path : {api::kAttachPath, api::kPrepRecvPath, api::kRemoteSendPath,
                           api::kStartGeneratePath, api::kReleasePath}) {
    EXPECT_EQ(engine.post(path, "{}").status, 401) << path;
  }
}

TEST(MicroservingMalformedLive, AnEngineAloneReceivesAndSendsNothing) {
  TestEngine engine;
  PrepareReceive receive;
  receive.prompt = testing::random_tokens(20, 1);
  receive.end = 16;
  const auto answer = engine.post(api::kPrepRecvPath, api::write_prep_recv({"", receive}));
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("symmetric world"), std::string::npos) << answer.body;
}

TEST(EngineServer, RefusesAWorldThatIsNone) {
  testing::StandInModel model;
  ThreadPool pool({.n_threads = 1, .cpus = {}});
  MetricsRegistry metrics;
  EngineServerOptions options;
  options.http.port = 0;
  options.world_json = R"({"uid":"x","npes":1})";
  const auto server = EngineServer::create(std::move(options), {model, pool, metrics, nullptr});
  ASSERT_FALSE(server.has_value());
  EXPECT_NE(server.error().message.find("pe_start"), std::string::npos) << server.error().message;
}

}  // namespace
}  // namespace baton::server
