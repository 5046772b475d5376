// The engine with its thread. Labelled "threaded": runs under TSan too.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <thread>

#include "testing/core_fixture.h"

namespace baton::engine {
namespace {

using testing::kStandInBlockBytes;
using testing::make_request;
using testing::Outcome;
using testing::random_tokens;
using testing::run_alone;

constexpr int64_t kLong = int64_t{60} * 1'000'000'000;

/// Collects outcomes from the engine thread.
class Inbox {
 public:
  UpdateSink sink() {
    return [this](RequestUpdate update) {
      const std::lock_guard lock(mutex_);
      outcomes_[update.id].take(std::move(update));
      changed_.notify_all();
    };
  }
  /// Blocks until `condition` holds for the outcomes.
  template <typename Condition>
  void wait_for(Condition condition) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return condition(outcomes_); });
  }
  Outcome outcome(RequestId id) {
    const std::lock_guard lock(mutex_);
    return outcomes_[id];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Outcome> outcomes_;
};

/// Lets the model's passes through only while open.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++n_arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  /// Blocks until a pass has arrived since the last call.
  void wait_for_arrival() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return n_arrived_ > n_seen_; });
    n_seen_ = n_arrived_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int64_t n_arrived_ = 0;
  int64_t n_seen_ = 0;
};

class EngineTest : public ::testing::Test {
 protected:
  void start(EngineOptions options = {}, int n_blocks = 2048) {
    options.kv_bytes = kStandInBlockBytes * static_cast<size_t>(n_blocks);
    model_.on_forward = [this](std::span<const model::SeqSlice>) { gate_.pass(); };
    engine_ =
        Engine::create(options, {.model = &model_, .clock = &clock_, .metrics = &metrics_}).value();
    engine_->start();
  }
  // A failed test may leave it shut, and the engine would wait for ever.
  void TearDown() override { gate_.set(true); }
  TokenRequest request(uint64_t id, int n_prompt, int max_tokens) {
    auto request = make_request(random_tokens(n_prompt, static_cast<uint32_t>(id)), max_tokens, id);
    request.id = RequestId{id};
    return request;
  }

  testing::ManualClock clock_;
  testing::StandInModel model_;
  MetricsRegistry metrics_;
  Gate gate_;
  Inbox inbox_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, ManyThreadsSubmitAndCancel) {
  start();
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kEach = 30;
  std::vector<std::thread> clients;
  for (uint64_t t = 0; t < kThreads; ++t) {
    clients.emplace_back([&, t] {
      for (uint64_t i = 1; i <= kEach; ++i) {
        const uint64_t id = t * 1000 + i;
        EXPECT_TRUE(
            engine_->submit(request(id, 5 + static_cast<int>(id % 300), 20), inbox_.sink()));
        if (i % 3 == 0) engine_->cancel(RequestId{id});
        (void)engine_->stats();
        (void)engine_->health();
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_TRUE(engine_->drain(kLong));
  engine_->stop();
  for (uint64_t t = 0; t < kThreads; ++t) {
    for (uint64_t i = 1; i <= kEach; ++i) {
      if (i % 3 == 0) continue;
      const RequestId id{t * 1000 + i};
      const Outcome outcome = inbox_.outcome(id);
      ASSERT_EQ(outcome.n_finished(), 1) << id.value;
      EXPECT_EQ(
          outcome.choices.at(0).tokens,
          run_alone(request(id.value, 5 + static_cast<int>(id.value % 300), 20)).choices[0].tokens);
    }
  }
  EXPECT_EQ(engine_->stats().blocks.used, 0);
  EXPECT_EQ(engine_->stats().n_running + engine_->stats().n_waiting, 0);
  EXPECT_TRUE(model_.faults().empty());
}

TEST_F(EngineTest, SamplingOnAPoolChangesNothing) {
  ThreadPool pool({.n_threads = 3, .cpus = {}});
  engine_ =
      Engine::create({.kv_bytes = 4 << 20},
                     {.model = &model_, .clock = &clock_, .metrics = &metrics_, .pool = &pool})
          .value();
  engine_->start();
  const auto make = [&](uint64_t id) {
    auto asked = request(id, 10 + 40 * static_cast<int>(id), 20);
    asked.n_choices = 1 + static_cast<int>(id % 3);
    asked.n_logprobs = 2;
    asked.n_prompt_logprobs = 1;
    return asked;
  };
  for (uint64_t id = 1; id <= 8; ++id) ASSERT_TRUE(engine_->submit(make(id), inbox_.sink()));
  EXPECT_TRUE(engine_->drain(kLong));
  for (uint64_t id = 1; id <= 8; ++id) {
    const Outcome got = inbox_.outcome(RequestId{id});
    const Outcome expected = run_alone(make(id));
    for (const auto& [choice, outcome] : expected.choices) {
      EXPECT_EQ(got.choices.at(choice).tokens, outcome.tokens);
      ASSERT_EQ(got.choices.at(choice).logprobs.size(), outcome.logprobs.size());
      EXPECT_EQ(got.choices.at(choice).logprobs[7].logprob, outcome.logprobs[7].logprob);
    }
    ASSERT_EQ(got.prompt->prompt_logprobs.size(), expected.prompt->prompt_logprobs.size());
    for (size_t i = 1; i < got.prompt->prompt_logprobs.size(); ++i) {
      EXPECT_EQ(got.prompt->prompt_logprobs[i].logprob,
                expected.prompt->prompt_logprobs[i].logprob);
    }
  }
  engine_->stop();
}

TEST_F(EngineTest, FullQueueRefusesAndRecovers) {
  EngineOptions options;
  options.max_queue = 3;
  options.max_batch = 1;
  start(options);
  gate_.set(false);
  ASSERT_TRUE(engine_->submit(request(1, 20, 5), inbox_.sink()));
  gate_.wait_for_arrival();
  EXPECT_EQ(engine_->stats().n_running, 1) << "seen while its step is under way";
  for (uint64_t id = 2; id <= 4; ++id) {
    ASSERT_TRUE(engine_->submit(request(id, 20, 5), inbox_.sink()));
  }
  const Status fourth = engine_->submit(request(5, 20, 5), inbox_.sink());
  ASSERT_FALSE(fourth);
  EXPECT_EQ(fourth.error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(fourth.error().retryable);
  gate_.set(true);
  inbox_.wait_for([](auto& outcomes) { return outcomes[RequestId{4}].n_finished() == 1; });
  EXPECT_TRUE(engine_->submit(request(5, 20, 5), inbox_.sink()));
  EXPECT_TRUE(engine_->drain(kLong));
}

TEST_F(EngineTest, CancelDuringAStepSilencesWhatItWouldSay) {
  start();
  gate_.set(false);
  ASSERT_TRUE(engine_->submit(request(1, 20, 5), inbox_.sink()));
  ASSERT_TRUE(engine_->submit(request(2, 20, 5), inbox_.sink()));
  gate_.wait_for_arrival();
  engine_->cancel(RequestId{1});
  gate_.set(true);
  EXPECT_TRUE(engine_->drain(kLong));
  EXPECT_TRUE(inbox_.outcome(RequestId{1}).choices.empty());
  EXPECT_EQ(inbox_.outcome(RequestId{2}).n_finished(), 1);
  EXPECT_EQ(engine_->stats().blocks.used, 0);
}

TEST_F(EngineTest, HealthSeesAStuckStepButNotIdleness) {
  start();
  EXPECT_TRUE(engine_->health().alive);
  clock_.advance(10 * kLong);
  EXPECT_TRUE(engine_->health().alive) << "idle for long is fine";
  gate_.set(false);
  ASSERT_TRUE(engine_->submit(request(1, 20, 5), inbox_.sink()));
  EXPECT_TRUE(engine_->health().alive);
  gate_.wait_for_arrival();
  clock_.advance(2 * kLong);
  EXPECT_FALSE(engine_->health().alive);
  EXPECT_EQ(engine_->health().reason,
            "the step loop has made no progress for 120 s with 1 requests pending");
  gate_.set(true);
  inbox_.wait_for([](auto& outcomes) { return outcomes[RequestId{1}].n_finished() == 1; });
  EXPECT_TRUE(engine_->drain(kLong));
  EXPECT_TRUE(engine_->health().alive);
  EXPECT_FALSE(engine_->health().ready);
}

TEST_F(EngineTest, HealthSeesMessagesThatNobodyTakes) {
  engine_ = Engine::create({.kv_bytes = 1 << 20},
                           {.model = &model_, .clock = &clock_, .metrics = &metrics_})
                .value();
  gate_.set(false);
  engine_->on_round([this](bool) { gate_.pass(); });
  engine_->start();
  gate_.wait_for_arrival();
  clock_.advance(10 * kLong);
  EXPECT_TRUE(engine_->health().alive) << "nobody waits for it";
  engine_->release(LeaseId{7});
  clock_.advance(2 * kLong);
  EXPECT_EQ(engine_->health().reason,
            "the step loop has made no progress for 120 s with 1 messages pending");
  EXPECT_FALSE(engine_->health().alive);
  gate_.set(true);
}

TEST_F(EngineTest, DrainFinishesWhatRunsAndTakesNoMore) {
  start();
  gate_.set(false);
  ASSERT_TRUE(engine_->submit(request(1, 200, 50), inbox_.sink()));
  EXPECT_FALSE(engine_->drain(0));
  const Status refused = engine_->submit(request(2, 20, 5), inbox_.sink());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  gate_.set(true);
  EXPECT_TRUE(engine_->drain(kLong));
  EXPECT_EQ(inbox_.outcome(RequestId{1}).choices[0].tokens.size(), 50U);
}

TEST_F(EngineTest, StopEndsWhatIsLeftWithAnError) {
  start();
  gate_.set(false);
  ASSERT_TRUE(engine_->submit(request(1, 20, 4000), inbox_.sink()));
  gate_.wait_for_arrival();
  ASSERT_TRUE(engine_->submit(request(2, 20, 5), inbox_.sink()));
  std::thread stopper([&] { engine_->stop(); });
  // Refusals begin once the step under way is the last one.
  uint64_t id = 100;
  while (engine_->submit(request(++id, 20, 5), inbox_.sink())) std::this_thread::yield();
  gate_.set(true);
  stopper.join();
  for (const uint64_t id : {1, 2}) {
    const Outcome outcome = inbox_.outcome(RequestId{id});
    ASSERT_EQ(outcome.n_finished(), 1);
    EXPECT_EQ(outcome.choices.at(0).finish, FinishReason::kCancelled);
    EXPECT_EQ(outcome.choices.at(0).error, "the engine stopped before the request was complete");
  }
  EXPECT_EQ(engine_->stats().blocks.used, 0);
  EXPECT_FALSE(engine_->health().alive);
  EXPECT_FALSE(engine_->submit(request(3, 20, 5), inbox_.sink()));
}

TEST_F(EngineTest, NeverStartedStopsCleanly) {
  engine_ = Engine::create({.kv_bytes = 1 << 20},
                           {.model = &model_, .clock = &clock_, .metrics = &metrics_})
                .value();
  EXPECT_FALSE(engine_->health().alive);
  EXPECT_NE(metrics_.text().find("vllm:num_preemptions_total 0"), std::string::npos);
  EXPECT_NE(metrics_.text().find("baton_kv_blocks{state=\"free\"} 1024"), std::string::npos);
}

}  // namespace
}  // namespace baton::engine
