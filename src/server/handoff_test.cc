// One prefill and one decode engine, driven over HTTP by the verbs, as a router does.
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

#include <nlohmann/json.hpp>

#include "server/server_test_support.h"

namespace baton::server {
namespace {

using nlohmann::json;
using testing::make_request;
using testing::Outcome;
using testing::random_tokens;

/// All but the last, incomplete block.
int end_of(const TokenRequest& request) {
  return (static_cast<int>(request.prompt.size()) - 1) / 16 * 16;
}

class Handoff : public ::testing::Test {
 protected:
  Handoff() {
    request.prompt = random_tokens(100, 7);
    request.max_tokens = 20;
    request.sampling.seed = 5;
    request.id = RequestId{1};
    request.label = "cmpl-test";
  }

  PreparedReceive prepare(const std::string& session = {}) {
    PrepareReceive message;
    message.prompt = request.prompt;
    message.end = end_of(request);
    message.match_prefix = !request.n_prompt_logprobs;
    message.label = request.label;
    const auto answer = decode.post(api::kPrepRecvPath, api::write_prep_recv({session, message}));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return api::read_prepared(answer.body).value();
  }
  RemoteSend send_of(const PreparedReceive& prepared) {
    RemoteSend message;
    message.id = request.id;
    message.prompt = request.prompt;
    message.begin = prepared.n_matched;
    message.end = end_of(request);
    message.to = prepared.address;
    message.n_prompt_logprobs = request.n_prompt_logprobs;
    message.label = request.label;
    return message;
  }
  net::HttpResponse send(const PreparedReceive& prepared, const std::string& session = {}) {
    return prefill.post(api::kRemoteSendPath, api::write_remote_send({session, send_of(prepared)}));
  }
  TokenRequest leased(const PreparedReceive& prepared) {
    TokenRequest out = request;
    out.leased = {prepared.lease, end_of(request)};
    return out;
  }
  /// Waits until the engine knows that the session has ended, and has cancelled what is its own.
  static bool gone(TestEngine& engine, const std::string& session) {
    const std::string nothing =
        api::write_release({session, {.lease = LeaseId{0}, .request = {}, .choice = {}}});
    for (int i = 0; i < 10'000; ++i) {
      if (engine.post(api::kReleasePath, nothing).status == 404) return true;
    }
    return false;
  }
  /// A prompt that takes several steps to prefill: one that is held in a step isn't done after it.
  void use_long_prompt(uint32_t seed) { request.prompt = random_tokens(1500, seed); }
  /// What a lone engine makes of it.
  Outcome expected() {
    engine::EngineOptions options;
    options.prefill_min_tokens = 32;
    return testing::run_alone(request, options);
  }

  testing::FakeWorld world{8};
  TestEngine prefill{{.role = Role::kPrefill, .world = &world, .pe = 0}};
  TestEngine decode{{.role = Role::kDecode, .world = &world, .pe = 1}};
  TokenRequest request;
};

TEST_F(Handoff, ByTheFourVerbsEqualsTheLoneEngine) {
  TestStream to_prefill(prefill);
  TestStream to_decode(decode);
  EXPECT_EQ(to_prefill.attached.engine.role, Role::kPrefill);
  EXPECT_EQ(to_decode.attached.engine.role, Role::kDecode);
  EXPECT_TRUE(to_decode.attached.engine.in_world);
  EXPECT_EQ(to_decode.attached.engine.layout_hash, to_prefill.attached.engine.layout_hash);
  const std::string& session = to_decode.attached.session;

  const PreparedReceive prepared = prepare(session);
  EXPECT_EQ(prepared.n_matched, 0);
  EXPECT_EQ(prepared.address.blocks.size(), static_cast<size_t>(end_of(request) / 16));
  EXPECT_EQ(prepared.address.incarnation, to_decode.attached.engine.incarnation);
  const auto sent_answer = send(prepared, to_prefill.attached.session);
  ASSERT_EQ(sent_answer.status, 200) << sent_answer.body;
  const SentKv sent = api::read_sent(sent_answer.body, 64).value();
  EXPECT_GT(sent.n_bytes, 0);
  EXPECT_EQ(sent.n_cached_tokens, 0);

  const auto started =
      decode.post(api::kStartGeneratePath, api::write_start_generate({session, leased(prepared)}));
  ASSERT_EQ(started.status, 200) << started.body;
  EXPECT_EQ(api::read_incarnation(started.body).value(), prepared.address.incarnation);
  const Outcome got = to_decode.wait_for_end(request.id);
  EXPECT_EQ(got.choices.at(0).tokens, expected().choices.at(0).tokens);
  EXPECT_EQ(got.choices.at(0).finish, FinishReason::kLength);
  EXPECT_EQ(decode.model.faults(), std::vector<std::string>());
  EXPECT_EQ(prefill.model.faults(), std::vector<std::string>());
  EXPECT_TRUE(decode.wait_until_idle());
  EXPECT_TRUE(prefill.wait_until_idle());
}

TEST_F(Handoff, GenerationMayStartBeforeTheKvIsSent) {
  TokenRequest whole = request;  // to have something beside it
  whole.prompt = random_tokens(50, 8);
  TestStream stream(decode, whole);
  prefill.gate.set(false);
  const PreparedReceive prepared = prepare();
  TokenRequest second = leased(prepared);
  second.id = RequestId{2};
  TestStream leased_stream(decode, second);
  net::HttpResponse sent;
  std::thread sender([&] { sent = send(prepared); });
  (void)stream.wait_for_end(request.id);
  prefill.gate.set(true);
  const Outcome got = leased_stream.wait_for_end(second.id);
  sender.join();
  EXPECT_EQ(sent.status, 200) << sent.body;
  EXPECT_EQ(got.choices.at(0).tokens, expected().choices.at(0).tokens);
  EXPECT_TRUE(leased_stream.wait_for([](const TestStream& s) { return s.ended; }));
}

TEST_F(Handoff, SeveralChoicesAndLogprobsOfThePrompt) {
  request.n_choices = 3;
  request.n_logprobs = 2;
  request.n_prompt_logprobs = 2;
  TestStream to_decode(decode);
  const PreparedReceive prepared = prepare(to_decode.attached.session);
  const auto sent = api::read_sent(send(prepared).body, 64).value();
  EXPECT_EQ(sent.prompt_logprobs.size(), static_cast<size_t>(end_of(request) + 1));
  const auto started =
      decode.post(api::kStartGeneratePath,
                  api::write_start_generate({to_decode.attached.session, leased(prepared)}));
  ASSERT_EQ(started.status, 200) << started.body;
  const Outcome got = to_decode.wait_for_end(request.id, 3);
  const Outcome alone = expected();
  for (int choice = 0; choice < 3; ++choice) {
    EXPECT_EQ(got.choices.at(choice).tokens, alone.choices.at(choice).tokens) << choice;
    ASSERT_EQ(got.choices.at(choice).logprobs.size(), alone.choices.at(choice).logprobs.size());
    for (size_t i = 0; i < alone.choices.at(choice).logprobs.size(); ++i) {
      EXPECT_EQ(got.choices.at(choice).logprobs[i].logprob,
                alone.choices.at(choice).logprobs[i].logprob);
    }
  }
  for (int i = 1; i <= end_of(request); ++i) {
    EXPECT_EQ(sent.prompt_logprobs[static_cast<size_t>(i)].logprob,
              alone.prompt->prompt_logprobs[static_cast<size_t>(i)].logprob)
        << i;
  }
}

TEST_F(Handoff, TheEndOfTheRoutersConnectionsFreesEverything) {
  // A lease alone; a lease with a send under way; a request that waits for its KV.
  for (const int stage : {0, 1, 2}) {
    use_long_prompt(static_cast<uint32_t>(stage));
    TestStream to_prefill(prefill);
    TestStream to_decode(decode);
    prefill.gate.set(false);
    const PreparedReceive prepared = prepare(to_decode.attached.session);
    // The answer may be here before the round's figures are.
    while (decode.server->engine().stats().blocks.leased == 0) std::this_thread::yield();
    net::HttpResponse sent;
    std::thread sender;
    if (stage > 0) {
      sender = std::thread([&] { sent = send(prepared, to_prefill.attached.session); });
      EXPECT_TRUE(prefill.wait_for(
          [](const engine::EngineStats& s) { return s.n_running + s.n_waiting > 0; }));
    }
    if (stage > 1) {
      const auto started =
          decode.post(api::kStartGeneratePath,
                      api::write_start_generate({to_decode.attached.session, leased(prepared)}));
      EXPECT_EQ(started.status, 200) << started.body;
    }
    to_decode.close();
    to_prefill.close();
    EXPECT_TRUE(gone(decode, to_decode.attached.session));
    EXPECT_TRUE(gone(prefill, to_prefill.attached.session));
    prefill.gate.set(true);
    EXPECT_TRUE(decode.wait_until_idle()) << stage;
    EXPECT_TRUE(prefill.wait_until_idle()) << stage;
    if (sender.joinable()) sender.join();
    if (stage > 0) {
      EXPECT_EQ(sent.status, 503) << sent.body;
    }
  }
  // And both go on.
  use_long_prompt(9);
  const PreparedReceive prepared = prepare();
  EXPECT_EQ(send(prepared).status, 200);
  TestStream stream(decode, leased(prepared));
  EXPECT_EQ(stream.wait_for_end(request.id).choices.at(0).tokens, expected().choices.at(0).tokens);
}

TEST_F(Handoff, ASendWhoseCallerGoesIsCancelled) {
  use_long_prompt(1);
  prefill.gate.set(false);
  const PreparedReceive prepared = prepare();
  const net::HttpCall call = prefill.client->request(
      {.method = "POST",
       .path = api::kRemoteSendPath,
       .query = {},
       .headers = {{"Content-Type", "application/json"}},
       .body = api::write_remote_send({"", send_of(prepared)})},
      std::chrono::milliseconds(0), [](const Result<net::HttpResponse>&) {});
  prefill.gate.wait_for(1);
  call.cancel();
  prefill.gate.set(true);
  EXPECT_TRUE(prefill.wait_until_idle());
  decode.post(api::kReleasePath,
              api::write_release({"", {.lease = prepared.lease, .request = {}, .choice = {}}}));
  EXPECT_TRUE(decode.wait_until_idle());
}

TEST_F(Handoff, AReleasedSendIs503AndAReleasedLeaseIsGone) {
  use_long_prompt(1);
  TestStream to_prefill(prefill);
  const std::string session = to_prefill.attached.session;
  prefill.gate.set(false);
  const PreparedReceive prepared = prepare();
  net::HttpResponse sent;
  std::thread sender([&] { sent = send(prepared, session); });
  prefill.gate.wait_for(1);
  const api::Release release{.lease = {}, .request = request.id, .choice = {}};
  EXPECT_EQ(prefill.post(api::kReleasePath, api::write_release({session, release})).status, 200);
  prefill.gate.set(true);
  sender.join();
  EXPECT_EQ(sent.status, 503) << sent.body;

  const api::Release give_back{.lease = prepared.lease, .request = {}, .choice = {}};
  EXPECT_EQ(decode.post(api::kReleasePath, api::write_release({"", give_back})).status, 200);
  EXPECT_TRUE(decode.wait_until_idle());
  TestStream stream(decode, leased(prepared));
  EXPECT_TRUE(stream.wait_for([](const TestStream& s) { return s.ended; }));
  EXPECT_EQ(stream.status, 404) << stream.body;
}

TEST_F(Handoff, MismatchesAre409WithBothValues) {
  const PreparedReceive prepared = prepare();
  RemoteSend message = send_of(prepared);
  const auto refused = [&] {
    const auto answer = prefill.post(api::kRemoteSendPath, api::write_remote_send({"", message}));
    EXPECT_EQ(answer.status, 409) << answer.body;
    return json::parse(answer.body)["error"]["message"].get<std::string>();
  };
  message.to.layout_hash += 1;
  std::string text = refused();
  EXPECT_NE(text.find(std::to_string(message.to.layout_hash)), text.npos) << text;
  EXPECT_NE(text.find(std::to_string(prepared.address.layout_hash)), text.npos) << text;
  message = send_of(prepared);
  message.to.incarnation += 1;
  text = refused();
  EXPECT_NE(text.find(std::to_string(message.to.incarnation)), text.npos) << text;
  EXPECT_NE(text.find(std::to_string(prepared.address.incarnation)), text.npos) << text;
  message = send_of(prepared);
  message.to.pe = Pe{5};  // nobody
  const auto answer = prefill.post(api::kRemoteSendPath, api::write_remote_send({"", message}));
  EXPECT_EQ(answer.status, 503) << answer.body;
}

TEST_F(Handoff, EachRoleRefusesWhatItDoesNotDo) {
  const auto start =
      prefill.post(api::kStartGeneratePath, api::write_start_generate({"", request}));
  EXPECT_EQ(start.status, 400);
  EXPECT_NE(start.body.find("prefill engine"), std::string::npos) << start.body;
  const auto completion = prefill.post("/v1/completions", R"({"prompt":[1,2,3]})");
  EXPECT_EQ(completion.status, 400);
  EXPECT_NE(completion.body.find("prefill engine"), std::string::npos) << completion.body;
  PrepareReceive receive;
  receive.prompt = request.prompt;
  receive.end = end_of(request);
  const auto prep = prefill.post(api::kPrepRecvPath, api::write_prep_recv({"", receive}));
  EXPECT_EQ(prep.status, 400);
  EXPECT_NE(prep.body.find("prefill engine"), std::string::npos) << prep.body;
  const auto sent =
      decode.post(api::kRemoteSendPath, api::write_remote_send({"", send_of(prepare())}));
  EXPECT_EQ(sent.status, 400);
  EXPECT_NE(sent.body.find("decode engine"), std::string::npos) << sent.body;
  // A decode engine is a complete server, though.
  EXPECT_EQ(decode.post("/v1/completions", R"({"prompt":[1,2,3],"max_tokens":2})").status, 200);
}

TEST_F(Handoff, NoRoomIs429AndNeverIs400) {
  TestEngine small({.role = Role::kDecode, .world = &world, .pe = 2, .n_blocks = 8});
  PrepareReceive message;
  message.prompt = random_tokens(80, 1);
  message.end = 64;
  EXPECT_EQ(small.post(api::kPrepRecvPath, api::write_prep_recv({"", message})).status, 200);
  const auto full = small.post(api::kPrepRecvPath, api::write_prep_recv({"", message}));
  EXPECT_EQ(full.status, 429) << full.body;
  EXPECT_EQ(full.headers.at("retry-after"), "1");
  message.prompt = random_tokens(200, 1);
  const auto never = small.post(api::kPrepRecvPath, api::write_prep_recv({"", message}));
  EXPECT_EQ(never.status, 400) << never.body;
}

TEST(HandoffInSharedMemory, EqualsTheLoneEngine) {
  // The first join is collective, so both start at once.
  const std::string uid = fmt::format("handoff-test-{}", ::getpid());
  const auto start = [&](Role role, int pe) {
    return std::async(std::launch::async, [=] {
      return std::make_unique<TestEngine>(
          TestEngineOptions{.role = role, .uid = uid, .npes = 2, .pe = pe});
    });
  };
  auto starting_prefill = start(Role::kPrefill, 0);
  auto starting_decode = start(Role::kDecode, 1);
  const auto prefill = starting_prefill.get();
  const auto decode = starting_decode.get();
  for (uint64_t id = 1; id <= 10; ++id) {
    TokenRequest request = make_request(random_tokens(300, static_cast<uint32_t>(id)), 10, id);
    request.id = RequestId{id};
    PrepareReceive receive;
    receive.prompt = request.prompt;
    receive.end = end_of(request);
    const auto prepared =
        api::read_prepared(
            decode->post(api::kPrepRecvPath, api::write_prep_recv({"", receive})).body)
            .value();
    request.leased = {prepared.lease, receive.end};
    TestStream stream(*decode, request);  // waits for the signal
    RemoteSend send;
    send.id = request.id;
    send.prompt = request.prompt;
    send.end = receive.end;
    send.to = prepared.address;
    const auto sent = prefill->post(api::kRemoteSendPath, api::write_remote_send({"", send}));
    ASSERT_EQ(sent.status, 200) << sent.body;
    const Outcome got = stream.wait_for_end(request.id);
    request.leased.reset();
    engine::EngineOptions options;
    options.prefill_min_tokens = 32;
    EXPECT_EQ(got.choices.at(0).tokens, testing::run_alone(request, options).choices.at(0).tokens);
  }
  EXPECT_TRUE(decode->wait_until_idle());
  EXPECT_EQ(decode->model.faults(), std::vector<std::string>());
}

}  // namespace
}  // namespace baton::server
