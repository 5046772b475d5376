#include "engine/core.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "testing/core_fixture.h"

namespace baton::engine {
namespace {

using testing::ChoiceOutcome;
using testing::CoreFixture;
using testing::make_request;
using testing::Outcome;
using testing::random_tokens;
using testing::run_alone;

void expect_same(const Outcome& got, const Outcome& expected, RequestId id) {
  EXPECT_EQ(got.n_prompts, 1) << id.value;
  EXPECT_FALSE(got.event_before_prompt) << id.value;
  ASSERT_EQ(got.choices.size(), expected.choices.size()) << id.value;
  for (const auto& [choice, outcome] : expected.choices) {
    const ChoiceOutcome& mine = got.choices.at(choice);
    EXPECT_EQ(mine.tokens, outcome.tokens) << id.value << " choice " << choice;
    EXPECT_EQ(mine.finish, outcome.finish) << id.value << " choice " << choice;
    EXPECT_FALSE(mine.after_finish) << id.value << " choice " << choice;
  }
}

/// 64 requests, 5–1,500 prompt tokens, 1–200 out, some with several choices.
std::vector<TokenRequest> mixed_requests() {
  std::vector<TokenRequest> requests;
  std::mt19937 random(7);
  for (uint32_t i = 0; i < 64; ++i) {
    const int n_prompt = 5 + static_cast<int>(random() % 1496);
    auto request =
        make_request(random_tokens(n_prompt, i), 1 + static_cast<int>(random() % 200), i);
    request.n_choices = i % 8 == 3 ? 3 : 1;
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(Core, MixedRequestsTogetherEqualOneByOne) {
  CoreFixture together({}, 8192);
  const auto requests = mixed_requests();
  for (const auto& request : requests) together.add(request);
  together.run();
  for (uint64_t i = 0; i < requests.size(); ++i) {
    expect_same(together.outcomes[RequestId{i + 1}], run_alone(requests[i]), RequestId{i + 1});
  }
  EXPECT_TRUE(together.model.faults().empty()) << together.model.faults().front();
  EXPECT_LE(together.model.max_pass_tokens(), 512);
  EXPECT_EQ(together.blocks().used, 0);
  EXPECT_EQ(together.core->stats().n_preemptions, 0);
  EXPECT_EQ(together.core->stats().n_waiting, 0);
}

TEST(Core, TinyPoolPreemptsAndChangesNothing) {
  // 120 blocks hold one of the longest requests, and not many of the others beside it.
  CoreFixture together({}, 120);
  const auto requests = mixed_requests();
  for (const auto& request : requests) together.add(request);
  together.run();
  for (uint64_t i = 0; i < requests.size(); ++i) {
    expect_same(together.outcomes[RequestId{i + 1}], run_alone(requests[i]), RequestId{i + 1});
  }
  EXPECT_TRUE(together.model.faults().empty()) << together.model.faults().front();
  EXPECT_GT(together.core->stats().n_preemptions, 0);
  EXPECT_EQ(together.blocks().used, 0);
}

TEST(Core, SamePromptTwiceIsCachedAndEqual) {
  CoreFixture fixture;
  const auto request = make_request(random_tokens(1000, 1), 20, 5);
  const RequestId first = fixture.add(request);
  fixture.run();
  const int64_t cold_tokens = fixture.model.n_tokens();
  const RequestId second = fixture.add(request);
  fixture.run();
  EXPECT_EQ(fixture.tokens(first), fixture.tokens(second));
  EXPECT_EQ(fixture.outcomes[first].prompt->n_cached_tokens, 0);
  EXPECT_EQ(fixture.outcomes[second].prompt->n_cached_tokens, 992);
  EXPECT_EQ(fixture.model.n_tokens() - cold_tokens, 8 + 19);
  EXPECT_NE(
      fixture.metrics.text().find("vllm:prefix_cache_hits_total{model_name=\"stand-in\"} 992"),
      std::string::npos);
}

TEST(Core, PromptIsPrefillClassUpToItsLastWholeBlock) {
  CoreFixture fixture;
  std::vector<std::pair<int, linalg::KernelClass>> slices;
  fixture.model.on_forward = [&](std::span<const model::SeqSlice> batch) {
    for (const auto& slice : batch) slices.emplace_back(slice.begin, slice.kernel_class);
  };
  fixture.add(make_request(random_tokens(1000, 1), 2));
  fixture.run();
  using enum linalg::KernelClass;
  const std::vector<std::pair<int, linalg::KernelClass>> expected = {
      {0, kPrefill}, {512, kPrefill}, {992, kDecode}, {1000, kDecode}};
  EXPECT_EQ(slices, expected);
}

TEST(Core, ShortPromptIsDecodeClass) {
  CoreFixture fixture;
  fixture.model.on_forward = [&](std::span<const model::SeqSlice> batch) {
    EXPECT_EQ(batch[0].kernel_class, linalg::KernelClass::kDecode);
  };
  fixture.add(make_request(random_tokens(127, 1), 3));
  fixture.run();
  EXPECT_EQ(fixture.model.n_passes(), 3);
}

TEST(Core, ChoicesShareThePromptAndEqualThemselvesAlone) {
  CoreFixture fixture;
  auto request = make_request(random_tokens(300, 1), 40, 9);
  request.n_choices = 5;
  const RequestId id = fixture.add(request);
  for (int i = 0; i < 3; ++i) fixture.step();
  // 18 whole blocks of the prompt in common, one of its own for each choice.
  EXPECT_EQ(fixture.blocks().used, 18 + 5);
  fixture.run();
  EXPECT_EQ(fixture.model.n_tokens(), 300 + 5 * 39);
  expect_same(fixture.outcomes[id], run_alone(request), id);
  EXPECT_NE(fixture.tokens(id, 0), fixture.tokens(id, 1));
  EXPECT_TRUE(fixture.model.faults().empty()) << fixture.model.faults().front();
}

TEST(Core, MoreChoicesThanTheBatchHolds) {
  EngineOptions small;
  small.max_batch = 3;
  CoreFixture fixture(small);
  auto request = make_request(random_tokens(200, 1), 10, 9);
  request.n_choices = 8;
  const RequestId id = fixture.add(request);
  fixture.run();
  expect_same(fixture.outcomes[id], run_alone(request), id);
  EXPECT_EQ(fixture.outcomes[id].n_finished(), 8);
}

TEST(Core, StopRules) {
  CoreFixture fixture;
  const auto free_run = make_request(random_tokens(20, 1), 30, 3);
  const std::vector<TokenId> tokens = run_alone(free_run).choices[0].tokens;
  const auto first_of = [&](TokenId id) {
    return static_cast<size_t>(std::find(tokens.begin(), tokens.end(), id) - tokens.begin()) + 1;
  };
  auto by_stop_id = free_run;
  by_stop_id.stop_ids = {tokens[10]};
  const RequestId a = fixture.add(by_stop_id);
  auto by_eos = free_run;
  by_eos.eos_ids = {tokens[12]};
  const RequestId b = fixture.add(by_eos);
  auto ignoring = by_eos;
  ignoring.ignore_eos = true;
  const RequestId c = fixture.add(ignoring);
  auto at_least = by_stop_id;
  at_least.min_tokens = 20;
  const RequestId d = fixture.add(at_least);
  fixture.run();
  EXPECT_EQ(fixture.tokens(a).size(), first_of(tokens[10]));
  EXPECT_EQ(fixture.outcomes[a].choices[0].finish, FinishReason::kStop);
  EXPECT_EQ(fixture.outcomes[a].choices[0].stop_id, tokens[10]);
  EXPECT_EQ(fixture.tokens(b).size(), first_of(tokens[12]));
  EXPECT_EQ(fixture.outcomes[b].choices[0].finish, FinishReason::kStop);
  EXPECT_FALSE(fixture.outcomes[b].choices[0].stop_id);
  EXPECT_EQ(fixture.tokens(c), tokens);
  EXPECT_EQ(fixture.outcomes[c].choices[0].finish, FinishReason::kLength);
  EXPECT_GE(fixture.tokens(d).size(), 20U);
  EXPECT_EQ(std::count(fixture.tokens(d).begin(), fixture.tokens(d).begin() + 20, tokens[10]), 0);
}

TEST(Core, PromptLogprobsCoverEveryPosition) {
  CoreFixture fixture;
  auto request = make_request(random_tokens(300, 1), 0);
  request.n_prompt_logprobs = 2;
  const RequestId warm = fixture.add(make_request(request.prompt, 1));
  fixture.run();
  const RequestId id = fixture.add(request);
  fixture.run();
  const Outcome& outcome = fixture.outcomes[id];
  EXPECT_EQ(fixture.outcomes[warm].n_finished(), 1);
  EXPECT_EQ(outcome.prompt->n_cached_tokens, 0) << "prefix matching is off";
  ASSERT_EQ(outcome.prompt->prompt_logprobs.size(), 300U);
  for (size_t i = 1; i < 300; ++i) EXPECT_LT(outcome.prompt->prompt_logprobs[i].logprob, 0.0F) << i;
  EXPECT_EQ(outcome.choices.at(0).finish, FinishReason::kLength);
  EXPECT_TRUE(outcome.choices.at(0).tokens.empty());
  EXPECT_EQ(fixture.blocks().used, 0);
}

TEST(Core, HigherPriorityRunsFirst) {
  EngineOptions one;
  one.max_batch = 1;
  CoreFixture fixture(one);
  std::vector<uint64_t> order;
  for (const int priority : {5, 0, -3, 0}) {
    auto request = make_request(random_tokens(20, 1), 2);
    request.priority = priority;
    fixture.add(request);
  }
  while (fixture.step()) {
    for (const auto& [id, outcome] : fixture.outcomes) {
      const bool done = outcome.n_finished() == 1;
      if (done && std::find(order.begin(), order.end(), id.value) == order.end()) {
        order.push_back(id.value);
      }
    }
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{3, 2, 4, 1}));
}

TEST(Core, DecodeRowsGoOnWhileALongPromptIsPrefilled) {
  CoreFixture fixture;
  const RequestId talker = fixture.add(make_request(random_tokens(20, 1), 50));
  fixture.step();
  fixture.add(make_request(random_tokens(3000, 2), 1));
  for (size_t n = 2; n <= 8; ++n) {
    fixture.step();
    EXPECT_EQ(fixture.tokens(talker).size(), n);
  }
  EXPECT_EQ(fixture.model.max_pass_tokens(), 1 + 64) << "a row and what prompts get beside it";
}

TEST(Core, CancelInEveryState) {
  EngineOptions options;
  options.max_batch = 2;
  CoreFixture fixture(options, 64);
  auto request = make_request(random_tokens(600, 1), 100);
  request.n_choices = 2;
  const RequestId queued = fixture.add(request);
  fixture.core->cancel(queued, std::nullopt);
  EXPECT_EQ(fixture.core->n_ended(), 1);
  EXPECT_EQ(fixture.core->n_left_queue(), 1);
  EXPECT_FALSE(fixture.step());

  const RequestId prefilling = fixture.add(request);
  fixture.step();
  EXPECT_GT(fixture.blocks().used, 0);
  fixture.core->cancel(prefilling, std::nullopt);
  EXPECT_EQ(fixture.blocks().used, 0);
  EXPECT_TRUE(fixture.outcomes[prefilling].choices.empty());

  const RequestId decoding = fixture.add(request);
  for (int i = 0; i < 5; ++i) fixture.step();
  EXPECT_GT(fixture.tokens(decoding).size(), 1U);
  const size_t n = fixture.tokens(decoding).size();
  fixture.core->step();
  fixture.core->cancel(decoding, std::nullopt);
  fixture.core->emit();
  EXPECT_EQ(fixture.blocks().used, 0);
  EXPECT_EQ(fixture.tokens(decoding).size(), n) << "no event after cancel";
  EXPECT_FALSE(fixture.step());
  EXPECT_EQ(fixture.core->n_ended(), 3);
}

TEST(Core, CancelOfAPreemptedRequest) {
  CoreFixture fixture({}, 20);
  const RequestId first = fixture.add(make_request(random_tokens(100, 1), 150));
  const RequestId second = fixture.add(make_request(random_tokens(100, 2), 150));
  while (fixture.core->stats().n_preemptions == 0) ASSERT_TRUE(fixture.step());
  EXPECT_EQ(fixture.core->stats().n_waiting, 1);
  fixture.core->cancel(second, std::nullopt);
  EXPECT_EQ(fixture.core->stats().n_waiting, 0);
  fixture.run();
  EXPECT_EQ(fixture.tokens(first).size(), 150U);
  EXPECT_EQ(fixture.blocks().used, 0);
}

TEST(Core, CancelOfTheChoiceThatComputesThePrompt) {
  CoreFixture fixture;
  auto request = make_request(random_tokens(900, 1), 10, 4);
  request.n_choices = 3;
  const RequestId id = fixture.add(request);
  fixture.step();
  fixture.core->cancel(id, 0);
  fixture.run();
  Outcome expected = run_alone(request);
  expected.choices.erase(0);
  expect_same(fixture.outcomes[id], expected, id);
  EXPECT_EQ(fixture.model.n_tokens(), 900 + 2 * 9) << "what was computed was kept";
}

TEST(Core, CancelOfTheQueuedChoiceLeavesTheOthers) {
  CoreFixture fixture;
  auto request = make_request(random_tokens(30, 1), 10, 4);
  request.n_choices = 2;
  const RequestId id = fixture.add(request);
  fixture.core->cancel(id, 0);
  fixture.core->cancel(id, 7);
  fixture.run();
  EXPECT_EQ(fixture.outcomes[id].choices.count(0), 0U);
  EXPECT_EQ(fixture.tokens(id, 1), run_alone(request).choices[1].tokens);
}

TEST(Core, ExactPrefixGivesTheSameBitsWithAWarmCache) {
  EngineOptions exact;
  exact.exact_prefix = true;
  CoreFixture fixture(exact);
  // A chat that grows: each prompt is the last one, its answer, and some more.
  std::vector<TokenId> prompt = random_tokens(100, 1);
  int n_cached = 0;
  for (uint32_t turn = 0; turn < 6; ++turn) {
    const auto request = make_request(prompt, 60, turn);
    const RequestId id = fixture.add(request);
    fixture.run();
    EXPECT_EQ(fixture.tokens(id), run_alone(request, exact).choices[0].tokens) << turn;
    n_cached += fixture.outcomes[id].prompt->n_cached_tokens;
    prompt.insert(prompt.end(), fixture.tokens(id).begin(), fixture.tokens(id).end());
    const auto more = random_tokens(50, 100 + turn);
    prompt.insert(prompt.end(), more.begin(), more.end());
  }
  EXPECT_GT(n_cached, 500);
  EXPECT_TRUE(fixture.model.faults().empty());
}

TEST(Core, AnswersAreMatchableByDefault) {
  CoreFixture fixture;
  std::vector<TokenId> prompt = random_tokens(150, 1);
  const RequestId first = fixture.add(make_request(prompt, 61));
  fixture.run();
  prompt.insert(prompt.end(), fixture.tokens(first).begin(), fixture.tokens(first).end());
  prompt.push_back(1);
  const RequestId second = fixture.add(make_request(prompt, 1));
  fixture.run();
  EXPECT_EQ(fixture.outcomes[second].prompt->n_cached_tokens, 208);
}

TEST(Core, ShortPromptsShareBlocksAmongThemselvesOnly) {
  CoreFixture fixture;
  const std::vector<TokenId> start = random_tokens(64, 1);
  const auto prompt = [&](int n, uint32_t seed) {
    auto tokens = start;
    const auto own = random_tokens(n - 64, seed);
    tokens.insert(tokens.end(), own.begin(), own.end());
    return make_request(tokens, 20, seed);
  };
  const auto cached = [&](const TokenRequest& request) {
    const RequestId id = fixture.add(request);
    fixture.run();
    EXPECT_EQ(fixture.tokens(id), run_alone(request).choices[0].tokens);
    return fixture.outcomes[id].prompt->n_cached_tokens;
  };
  EXPECT_EQ(cached(prompt(100, 2)), 0);
  EXPECT_EQ(cached(prompt(90, 3)), 64);
  EXPECT_EQ(cached(prompt(200, 4)), 0) << "computed by the other kernel class";
  EXPECT_EQ(cached(prompt(128, 5)), 64);
  EXPECT_EQ(cached(prompt(127, 6)), 64);
}

TEST(Core, TracesQueuePrefillAndDecode) {
  const std::string path = ::testing::TempDir() + "engine_core_trace.json";
  {
    const auto trace = Trace::open(path, "engine").value();
    CoreFixture fixture({}, 1024, {}, {.trace = trace.get()});
    auto request = make_request(random_tokens(200, 1), 3);
    request.label = "cmpl-\"1\"";
    fixture.add(request);
    request.label.clear();
    fixture.add(request);
    fixture.run();
  }
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::filesystem::remove(path);
  const auto count = [&](const std::string& what) {
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("\"queue\""), 2);
  EXPECT_EQ(count("\"prefill\""), 2) << "whole blocks, then the tail";
  EXPECT_EQ(count("\"decode\""), 2);
  EXPECT_EQ(count("\"tokens\":384,\"requests\":[\"cmpl-\\\"1\\\"\",\"0000000000000002\"]"), 1);
}

TEST(Core, RefusesWhatCanNeverRun) {
  CoreFixture fixture({}, 10);
  EXPECT_EQ(fixture.core->limits().context_tokens, 160);
  const auto message = [&](const TokenRequest& request) {
    const Status status = fixture.core->check(request);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(message(make_request(random_tokens(100, 1), 60)), "");
  EXPECT_EQ(message(make_request(random_tokens(100, 1), 61)),
            "prompt (100 tokens) + max_tokens (61) is over the context of 160 tokens");
  EXPECT_EQ(message(make_request({}, 1)), "the prompt is empty");
  EXPECT_EQ(message(make_request({1, 64}, 1)), "prompt token 64 is not in [0, 64)");
  EXPECT_EQ(message(make_request({1}, 0)), "max_tokens 0: must be at least 1");
  auto stops = make_request({1}, 1);
  stops.stop_ids = {-1};
  EXPECT_EQ(message(stops), "stop token -1 is not in [0, 64)");
  auto done = make_request({1}, 3);
  done.output = {1, 2, 3};
  EXPECT_EQ(message(done), "output of 3 tokens: max_tokens (3) leaves nothing to generate");
  done.output = {1, 64};
  EXPECT_EQ(message(done), "output token 64 is not in [0, 64)");
  done.n_choices = 2;
  EXPECT_EQ(message(done), "n 2: a request with output has one choice");
  const RequestId longest = fixture.add(make_request(random_tokens(100, 1), 60));
  fixture.run();
  EXPECT_EQ(fixture.tokens(longest).size(), 60U);
}

TEST(Core, RefusesOptionsThatCanNotBe) {
  testing::ManualClock clock;
  testing::StandInModel model;
  MetricsRegistry metrics;
  const auto message = [&](const EngineOptions& options) {
    auto core =
        EngineCore::create(options, {.model = &model, .clock = &clock, .metrics = &metrics});
    return core ? std::string() : core.error().message;
  };
  EngineOptions few_tokens;
  few_tokens.max_batched_tokens = 79;
  EXPECT_EQ(message(few_tokens),
            "--max-batched-tokens 79: must be at least --max-batch (64) + 16 = 80");
  EngineOptions small_pool;
  small_pool.kv_bytes = 2047;
  EXPECT_NE(message(small_pool).find("--kv-memory 2047 bytes"), std::string::npos);
  EngineOptions type;
  type.kv_type = TensorType::kQ8_0;
  EXPECT_NE(message(type), "");
}

}  // namespace
}  // namespace baton::engine
