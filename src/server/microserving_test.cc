// Sessions: attach, frames, heartbeats, ids, ends. One engine that does everything.
#include "server/microserving.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <new>
#include <thread>

#include "base/log.h"
#include "frontend/frontend_test_support.h"
#include "server/server_test_support.h"

namespace baton::server {
namespace {

using testing::make_request;
using testing::Outcome;
using testing::random_tokens;

TokenRequest request_of(uint64_t id, int n_prompt = 20, int max_tokens = 10) {
  TokenRequest out =
      make_request(random_tokens(n_prompt, static_cast<uint32_t>(id)), max_tokens, id);
  out.id = RequestId{id};
  return out;
}

net::HttpResponse start(TestEngine& engine, const TestStream& stream, const TokenRequest& request) {
  return engine.post(api::kStartGeneratePath,
                     api::write_start_generate({stream.attached.session, request}));
}

engine::EngineOptions alone() {
  engine::EngineOptions options;
  options.prefill_min_tokens = 32;
  return options;
}

TEST(Microserving, AttachTellsWhatTheEngineIs) {
  TestEngine engine;
  TestStream stream(engine);
  EXPECT_EQ(stream.status, 200);
  const EngineInfo& info = stream.attached.engine;
  EXPECT_EQ(info.role, Role::kBoth);
  EXPECT_NE(info.incarnation, 0U);
  EXPECT_EQ(info.pid, ::getpid());
  EXPECT_EQ(info.cpus, std::vector<int>{0});
  EXPECT_EQ(info.n_vocab, 64);
  EXPECT_EQ(info.n_blocks, 1024);
  EXPECT_EQ(info.block_tokens, 16);
  EXPECT_EQ(info.max_batch, 64);
  EXPECT_EQ(info.prefill_min_tokens, 32);
  EXPECT_FALSE(info.in_world);
  EXPECT_EQ(stream.attached.session.size(), 32U);
  TestStream other(engine);
  EXPECT_NE(other.attached.session, stream.attached.session);
}

TEST(Microserving, FramesComeThoughNothingHappens) {
  TestEngine engine;
  TestStream stream(engine);
  EXPECT_TRUE(stream.wait_for([](const TestStream& s) { return s.n_frames >= 5; }));
  EXPECT_EQ(stream.n_updates, 0);
  EXPECT_TRUE(stream.state.alive && stream.state.ready);
  EXPECT_EQ(stream.state.blocks_free, 1024);
}

/// A connection for which there is no memory any more.
class FullExchange final : public frontend::FakeExchange {
 public:
  using FakeExchange::FakeExchange;
  void post(std::function<void()>) override { throw std::bad_alloc(); }
};

// Row 16: a service thread dies of one exception and all later messages stall.
TEST(MicroservingDeathTest, Row16_AnExceptionInTheHeartbeatEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        (void)init_logging("error", "text");
        testing::StandInModel model;
        const SystemClock clock;
        MetricsRegistry metrics;
        const auto engine =
            engine::Engine::create({.kv_bytes = 1 << 20},
                                   {.model = &model, .clock = &clock, .metrics = &metrics})
                .value();
        Microserving microserving({.info = {}, .heartbeat = std::chrono::milliseconds(1)},
                                  {*engine, nullptr, clock});
        const auto exchange = std::make_shared<FullExchange>(
            net::HttpRequest{"POST", api::kAttachPath, {}, {}, api::write_attach({"test router"})});
        microserving.routes().front().handler(exchange);
        ::pause();
      },
      "thread 'baton-heartbeat' has ended by an exception.*bad_alloc");
}

TEST(Microserving, RequestsOfASessionEqualTheLoneEngine) {
  TestEngine engine;
  TestStream stream(engine);
  constexpr uint64_t kRequests = 20;
  for (uint64_t id = 0; id < kRequests; ++id) {
    auto request = request_of(id, 5 + static_cast<int>(id) * 7);
    request.n_choices = 1 + static_cast<int>(id % 3);
    const auto answer = start(engine, stream, request);
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(api::read_incarnation(answer.body).value(), stream.attached.engine.incarnation);
  }
  for (uint64_t id = 0; id < kRequests; ++id) {
    auto request = request_of(id, 5 + static_cast<int>(id) * 7);
    request.n_choices = 1 + static_cast<int>(id % 3);
    const Outcome got = stream.wait_for_end(request.id, request.n_choices);
    const Outcome expected = testing::run_alone(request, alone());
    EXPECT_EQ(got.n_prompts, 1);
    EXPECT_FALSE(got.event_before_prompt);
    for (int choice = 0; choice < request.n_choices; ++choice) {
      EXPECT_EQ(got.choices.at(choice).tokens, expected.choices.at(choice).tokens);
      EXPECT_FALSE(got.choices.at(choice).after_finish);
    }
  }
  EXPECT_TRUE(engine.wait_until_idle());
}

TEST(Microserving, UpdatesOfOneStepComeInOneFrame) {
  TestEngine engine({.heartbeat = std::chrono::seconds(600)});
  TestStream stream(engine);
  engine.gate.set(false);
  constexpr uint64_t kRequests = 8;
  for (uint64_t id = 0; id < kRequests; ++id) {
    ASSERT_EQ(start(engine, stream, request_of(id, 10, 30)).status, 200);
  }
  engine.gate.set(true);
  for (uint64_t id = 0; id < kRequests; ++id) (void)stream.wait_for_end(RequestId{id});
  // Steps that overtake the writing share a frame, so there may be fewer frames than steps.
  EXPECT_LE(stream.n_frames, engine.server->engine().stats().n_steps + 1);
  EXPECT_GE(stream.n_updates, 30);
}

TEST(Microserving, TwoRoutersMayUseTheSameIds) {
  TestEngine engine;
  TestStream one(engine);
  TestStream two(engine);
  auto first = request_of(7);
  auto second = request_of(8);
  second.id = first.id;
  ASSERT_EQ(start(engine, one, first).status, 200);
  ASSERT_EQ(start(engine, two, second).status, 200);
  EXPECT_EQ(one.wait_for_end(first.id).choices.at(0).tokens,
            testing::run_alone(first, alone()).choices.at(0).tokens);
  EXPECT_EQ(two.wait_for_end(first.id).choices.at(0).tokens,
            testing::run_alone(second, alone()).choices.at(0).tokens);
}

TEST(Microserving, AnIdThatRunsIsRefusedAndFreeAfterwards) {
  TestEngine engine;
  TestStream stream(engine);
  engine.gate.set(false);
  ASSERT_EQ(start(engine, stream, request_of(3)).status, 200);
  const auto again = start(engine, stream, request_of(3));
  EXPECT_EQ(again.status, 400);
  EXPECT_NE(again.body.find("'id' 3 is in use"), std::string::npos) << again.body;
  engine.gate.set(true);
  (void)stream.wait_for_end(RequestId{3});
  EXPECT_EQ(start(engine, stream, request_of(3)).status, 200);
}

TEST(Microserving, ReleaseEndsARequestOrOneChoiceSilently) {
  TestEngine engine;
  TestStream stream(engine);
  const std::string& session = stream.attached.session;
  engine.gate.set(false);
  auto request = request_of(1, 10, 200);
  request.n_choices = 2;
  request.first_choice = 4;
  ASSERT_EQ(start(engine, stream, request).status, 200);
  ASSERT_EQ(start(engine, stream, request_of(2, 10, 200)).status, 200);
  const auto release = [&](api::Release message) {
    EXPECT_EQ(engine.post(api::kReleasePath, api::write_release({session, message})).status, 200);
  };
  release({.lease = {}, .request = RequestId{1}, .choice = 4});
  release({.lease = {}, .request = RequestId{2}, .choice = {}});
  release({.lease = {}, .request = RequestId{99}, .choice = {}});  // unknown: ignored
  release({.lease = LeaseId{99}, .request = {}, .choice = {}});
  engine.gate.set(true);
  const Outcome got = stream.wait_for_end(RequestId{1});
  EXPECT_FALSE(got.choices.at(5).tokens.empty());
  EXPECT_FALSE(got.choices.contains(4) && got.choices.at(4).finish);
  EXPECT_TRUE(engine.wait_until_idle());
  EXPECT_EQ(stream.outcomes[RequestId{2}].n_finished(), 0);
}

TEST(Microserving, EverythingOfASessionEndsWithIt) {
  TestEngine engine;
  TestStream other(engine);
  ASSERT_EQ(start(engine, other, request_of(1, 10, 2000)).status, 200);
  {
    TestStream stream(engine);
    for (uint64_t id = 0; id < 10; ++id) {
      ASSERT_EQ(start(engine, stream, request_of(id, 10, 2000)).status, 200);
    }
    EXPECT_TRUE(stream.wait_for([](const TestStream& s) { return s.n_updates > 10; }));
  }
  EXPECT_TRUE(
      engine.wait_for([](const engine::EngineStats& s) { return s.n_running + s.n_waiting <= 1; }));
  EXPECT_EQ(other.wait_for_end(RequestId{1}).choices.at(0).tokens.size(), 2000U);
}

TEST(Microserving, AnOwnStreamEndsByItselfAndCancelsWhenClosed) {
  TestEngine engine;
  const TokenRequest request = request_of(5, 40);
  TestStream stream(engine, request);
  EXPECT_EQ(stream.wait_for_end(request.id).choices.at(0).tokens,
            testing::run_alone(request, alone()).choices.at(0).tokens);
  EXPECT_TRUE(stream.wait_for([](const TestStream& s) { return s.ended; }));
  EXPECT_TRUE(stream.wrong.empty());
  {
    TestStream closed(engine, request_of(6, 10, 4000));
    EXPECT_TRUE(closed.wait_for([](const TestStream& s) { return s.n_updates > 2; }));
  }
  EXPECT_TRUE(engine.wait_until_idle());
}

TEST(Microserving, AFullQueueIs429) {
  TestEngine engine({.max_queue = 1});
  TestStream stream(engine);
  engine.gate.set(false);
  ASSERT_EQ(start(engine, stream, request_of(1)).status, 200);
  engine.gate.wait_for(1);
  ASSERT_EQ(start(engine, stream, request_of(2)).status, 200);
  const auto full = start(engine, stream, request_of(3));
  EXPECT_EQ(full.status, 429) << full.body;
  engine.gate.set(true);
  (void)stream.wait_for_end(RequestId{2});
  EXPECT_EQ(start(engine, stream, request_of(3)).status, 200) << "the id was not given back";
}

TEST(Microserving, DrainingIsSeenAndEndsTheStreams) {
  TestEngine engine;
  TestStream stream(engine);
  engine.gate.set(false);
  ASSERT_EQ(start(engine, stream, request_of(1)).status, 200);
  engine.gate.wait_for(1);
  bool finished = false;
  std::thread drainer([&] { finished = engine.server->drain(std::chrono::seconds(60)); });
  EXPECT_TRUE(stream.wait_for([](const TestStream& s) { return !s.state.ready; }));
  EXPECT_TRUE(stream.state.alive);
  engine.gate.set(true);
  EXPECT_EQ(stream.wait_for_end(RequestId{1}).choices.at(0).finish, FinishReason::kLength);
  EXPECT_TRUE(stream.wait_for([](const TestStream& s) { return s.ended; }));
  drainer.join();
  EXPECT_TRUE(finished);
}

TEST(Microserving, ManyRoutersComeAndGo) {
  TestEngine engine;
  std::vector<std::thread> routers;
  for (uint64_t r = 0; r < 4; ++r) {
    routers.emplace_back([&, r] {
      for (uint64_t round = 0; round < 10; ++round) {
        TestStream stream(engine);
        for (uint64_t id = 0; id < 5; ++id) {
          EXPECT_EQ(start(engine, stream, request_of(id, 10, 300 + static_cast<int>(r))).status,
                    200);
        }
        if ((r + round) % 2 == 0) continue;
        for (uint64_t id = 0; id < 5; ++id) (void)stream.wait_for_end(RequestId{id});
      }
    });
  }
  for (auto& router : routers) router.join();
  EXPECT_TRUE(engine.wait_until_idle());
  EXPECT_EQ(engine.model.faults(), std::vector<std::string>());
}

}  // namespace
}  // namespace baton::server
