// Handoffs between engines with their threads. Labelled "threaded": runs under TSan too.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "engine/engine.h"
#include "testing/handoff_fixture.h"

namespace baton::engine {
namespace {

using testing::FakeWorld;
using testing::handoff_options;
using testing::make_request;
using testing::Outcome;
using testing::random_tokens;
using testing::StandInModel;
using testing::tokens_alone;
using testing::whole_blocks;

constexpr int64_t kLong = int64_t{60} * 1'000'000'000;

/// An engine in a world, running.
struct Node {
  Node(FakeWorld& world, Pe pe, EngineOptions options, int n_blocks = 1024) {
    options.kv_bytes = testing::kStandInBlockBytes * static_cast<size_t>(n_blocks);
    const kv::KvLayout layout = plan_kv(options, model).value();
    heap = world.join({.first_pe = pe,
                       .bytes_per_pe = layout.total_bytes(),
                       .member = kv_member(layout, "stand-in", "engine")});
    engine =
        Engine::create(options,
                       {.model = &model, .clock = &clock, .metrics = &metrics, .heap = heap.get()})
            .value();
    engine->start();
  }
  /// Waits until `condition` holds for the stats; the test's time-out ends it otherwise.
  template <typename Condition>
  void wait_for(Condition condition) const {
    while (!condition(engine->stats())) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  [[nodiscard]] Result<PreparedReceive> prepare(const std::vector<TokenId>& prompt,
                                                int64_t lease_ns = 0) const {
    std::promise<Result<PreparedReceive>> answer;
    PrepareReceive request;
    request.prompt = prompt;
    request.end = whole_blocks(prompt);
    request.lease_ns = lease_ns;
    engine->prepare_receive(request, [&](auto result) { answer.set_value(std::move(result)); });
    return answer.get_future().get();
  }

  SystemClock clock;
  StandInModel model;
  MetricsRegistry metrics;
  std::unique_ptr<shmem::Heap> heap;
  std::unique_ptr<Engine> engine;
};

bool nothing_held(const EngineStats& stats) {
  return stats.n_leases + stats.n_quarantined + stats.blocks.leased + stats.blocks.used == 0;
}

RemoteSend make_send(uint64_t id, const std::vector<TokenId>& prompt,
                     const PreparedReceive& prepared) {
  RemoteSend send;
  send.id = RequestId{id};
  send.prompt = prompt;
  send.begin = prepared.n_matched;
  send.end = whole_blocks(prompt);
  send.to = prepared.address;
  return send;
}

/// What one request was sent, from the engine thread.
struct Inbox {
  UpdateSink sink() {
    return [this](RequestUpdate update) {
      outcome.take(std::move(update));
      if (outcome.n_finished() == 1) done.set_value();
    };
  }
  Outcome outcome;
  std::promise<void> done;
};

TEST(EngineHandoff, ManyAtOnceBetweenThreads) {
  FakeWorld world(2);
  Node prefill(world, Pe{0}, handoff_options(Role::kPrefill));
  Node decode(world, Pe{1}, handoff_options(Role::kDecode));
  std::vector<std::thread> clients;
  for (uint64_t t = 1; t <= 4; ++t) {
    clients.emplace_back([&, t] {
      for (uint64_t i = 0; i < 12; ++i) {
        const uint64_t id = t * 1000 + i;
        auto request = make_request(random_tokens(20 + int(id % 37) * 9, uint32_t(id)), 20, id);
        request.id = RequestId{id};
        const auto prepared = decode.prepare(request.prompt, kLong);
        ASSERT_TRUE(prepared) << prepared.error().message;
        std::promise<Result<SentKv>> sent;
        ASSERT_TRUE(prefill.engine->remote_send(
            make_send(id, request.prompt, *prepared),
            [&](Result<SentKv> result) { sent.set_value(std::move(result)); }));
        request.leased = {prepared->lease, whole_blocks(request.prompt)};
        Inbox inbox;
        ASSERT_TRUE(decode.engine->submit(request, inbox.sink()));
        EXPECT_TRUE(sent.get_future().get());
        inbox.done.get_future().get();
        request.leased.reset();
        EXPECT_EQ(inbox.outcome.choices[0].tokens, tokens_alone(request));
      }
    });
  }
  for (auto& client : clients) client.join();
  for (Node* node : {&prefill, &decode}) {
    EXPECT_TRUE(node->engine->drain(kLong));
    node->wait_for(nothing_held);
    node->engine->stop();
    EXPECT_TRUE(node->model.faults().empty());
  }
}

// Row 7: an idle engine has no other reason to wake up.
TEST(EngineHandoff, Row7AnIdleEngineLetsALeaseExpire) {
  FakeWorld world(2);
  Node decode(world, Pe{1}, handoff_options(Role::kDecode));
  const auto prompt = random_tokens(300, 1);
  ASSERT_TRUE(decode.prepare(prompt, 20'000'000));
  const auto prepared = decode.prepare(prompt, 30'000'000).value();
  auto request = make_request(prompt, 5);
  request.id = RequestId{1};
  request.leased = {prepared.lease, 288};
  Inbox inbox;
  ASSERT_TRUE(decode.engine->submit(request, inbox.sink()));
  inbox.done.get_future().get();
  EXPECT_EQ(inbox.outcome.choices[0].finish, FinishReason::kGivenUp);
  decode.wait_for(nothing_held);
  const Status late = decode.engine->submit(request, inbox.sink());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kNotFound);
}

TEST(EngineHandoff, AnIdleEngineReapsItsQuarantine) {
  FakeWorld world(2);
  Node decode(world, Pe{1}, handoff_options(Role::kDecode));
  auto writer = world.join({.first_pe = Pe{0}, .bytes_per_pe = 64});
  const auto prepared = decode.prepare(random_tokens(300, 1), kLong).value();
  world.hold_next_put(Pe{1});
  const std::vector<std::byte> bytes(64);
  const shmem::Piece piece{0, bytes};
  const shmem::Target target{prepared.address.pe,
                             prepared.address.incarnation,
                             {prepared.address.window_slot, prepared.address.window_tag}};
  ASSERT_TRUE(writer->put(target, {&piece, 1}));
  decode.engine->release(prepared.lease);
  decode.wait_for([](const EngineStats& stats) { return stats.n_quarantined == 1; });
  EXPECT_EQ(decode.engine->stats().blocks.leased, 18);
  EXPECT_FALSE(writer->put(target, {&piece, 1}));
  EXPECT_EQ(world.finish_puts(), 1);
  decode.wait_for(nothing_held);
}

TEST(EngineHandoff, CancelsReachSendsInTheQueue) {
  FakeWorld world(2);
  Node prefill(world, Pe{0}, handoff_options(Role::kPrefill));
  Node decode(world, Pe{1}, handoff_options(Role::kDecode));
  std::vector<std::promise<Result<SentKv>>> answers(8);
  for (uint64_t i = 0; i < answers.size(); ++i) {
    const auto prepared = decode.prepare(random_tokens(100, uint32_t(i))).value();
    ASSERT_TRUE(prefill.engine->remote_send(
        make_send(i + 1, random_tokens(100, uint32_t(i)), prepared),
        [&, i](Result<SentKv> result) { answers[i].set_value(std::move(result)); }));
    prefill.engine->cancel(RequestId{i + 1});
    decode.engine->release(prepared.lease);
  }
  for (auto& answer : answers) {
    const auto result = answer.get_future().get();
    EXPECT_TRUE(result || result.error().code == ErrorCode::kCancelled ||
                result.error().code == ErrorCode::kUnavailable);
  }
  EXPECT_TRUE(prefill.engine->drain(kLong));
  prefill.wait_for(nothing_held);
  decode.wait_for(nothing_held);
}

TEST(EngineHandoff, AStoppedEngineAnswersWhatIsLeft) {
  FakeWorld world(2);
  Node prefill(world, Pe{0}, handoff_options(Role::kPrefill));
  Node decode(world, Pe{1}, handoff_options(Role::kDecode));
  const auto prompt = random_tokens(300, 1);
  const auto prepared = decode.prepare(prompt, kLong).value();
  decode.engine->stop();
  EXPECT_EQ(decode.prepare(prompt).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(nothing_held(decode.engine->stats()));
  std::promise<Result<SentKv>> answer;
  ASSERT_TRUE(prefill.engine->remote_send(make_send(1, prompt, prepared), [&](Result<SentKv> sent) {
    answer.set_value(std::move(sent));
  }));
  EXPECT_EQ(answer.get_future().get().error().code, ErrorCode::kUnavailable);
  prefill.engine->stop();
  EXPECT_EQ(prefill.engine->remote_send(make_send(2, prompt, prepared), [](auto) {}).error().code,
            ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace baton::engine
