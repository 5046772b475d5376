// Random requests, choices, priorities, shared prefixes and cancels over small pools, for many
// seeds: what completes equals its run alone, and nothing is left behind.
#include <gtest/gtest.h>

#include "testing/core_fixture.h"

namespace baton::engine {
namespace {

using testing::CoreFixture;
using testing::make_request;
using testing::Outcome;
using testing::random_tokens;

int below(std::mt19937& random, int n) { return static_cast<int>(random() % uint32_t(n)); }

/// A prompt that may share its start with others.
std::vector<TokenId> random_prompt(std::mt19937& random) {
  std::vector<TokenId> prompt;
  if (below(random, 2) == 0) {
    prompt = random_tokens(16 * below(random, 12), uint32_t(below(random, 3)));
  }
  const auto own = random_tokens(1 + below(random, 200), random());
  prompt.insert(prompt.end(), own.begin(), own.end());
  return prompt;
}

TokenRequest random_request(std::mt19937& random) {
  auto request = make_request(random_prompt(random), 1 + below(random, 80), random());
  request.n_choices = below(random, 4) == 0 ? 1 + below(random, 5) : 1;
  request.priority = below(random, 3) - 1;
  if (below(random, 8) == 0) {
    request.n_prompt_logprobs = 1;
    request.max_tokens = below(random, 3);
  }
  if (below(random, 4) == 0) request.eos_ids = {below(random, 64)};
  if (below(random, 4) == 0) request.sampling.temperature = 0;
  return request;
}

struct Soak {
  EngineOptions options;
  bool class_matters;
  int n_blocks;
};

void expect_as_alone(const CoreFixture& fixture, const Soak& soak,
                     const std::map<RequestId, TokenRequest>& requests,
                     const std::map<RequestId, std::vector<bool>>& cancelled) {
  for (const auto& [id, request] : requests) {
    CoreFixture alone(soak.options, 1024, {.class_matters = soak.class_matters});
    const RequestId alone_id = alone.add(request);
    alone.run();
    const Outcome& outcome = fixture.outcomes.at(id);
    for (int c = 0; c < request.n_choices; ++c) {
      const bool complete = !cancelled.at(id)[static_cast<size_t>(c)];
      const auto it = outcome.choices.find(c);
      if (it == outcome.choices.end()) {
        EXPECT_FALSE(complete) << id.value << "/" << c;
        continue;
      }
      EXPECT_FALSE(it->second.after_finish);
      const auto& expected = alone.outcomes[alone_id].choices[c].tokens;
      if (complete) {
        EXPECT_TRUE(it->second.finish.has_value()) << id.value << "/" << c;
        EXPECT_EQ(it->second.tokens, expected) << id.value << "/" << c;
      } else {
        ASSERT_LE(it->second.tokens.size(), expected.size());
        EXPECT_TRUE(
            std::equal(it->second.tokens.begin(), it->second.tokens.end(), expected.begin()));
      }
    }
  }
}

void run_soak(uint32_t seed, const Soak& soak) {
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  CoreFixture fixture(soak.options, soak.n_blocks, {.class_matters = soak.class_matters});
  std::map<RequestId, TokenRequest> requests;
  std::map<RequestId, std::vector<bool>> cancelled;
  for (int i = 0; i < 400 || fixture.core->has_work(); ++i) {
    ASSERT_LT(i, 100'000) << "it does not come to an end";
    if (requests.size() < 60 && below(random, 4) == 0) {
      const TokenRequest request = random_request(random);
      ASSERT_TRUE(fixture.core->check(request));
      const RequestId id = fixture.add(request);
      requests[id] = request;
      cancelled[id].resize(static_cast<size_t>(request.n_choices));
    }
    fixture.core->step();
    if (!requests.empty() && below(random, 10) == 0) {
      const RequestId id{1 + random() % requests.size()};
      auto& gone = cancelled[id];
      std::optional<int> choice;
      if (below(random, 2) == 0) choice = below(random, static_cast<int>(gone.size()));
      fixture.core->cancel(id, choice);
      for (size_t c = 0; c < gone.size(); ++c) {
        const bool finished = fixture.outcomes[id].choices[static_cast<int>(c)].finish.has_value();
        if ((!choice || static_cast<size_t>(*choice) == c) && !finished) gone[c] = true;
      }
    }
    fixture.core->emit();
    const auto blocks = fixture.blocks();
    ASSERT_EQ(blocks.free + blocks.used + blocks.cached, soak.n_blocks);
  }
  const EngineStats stats = fixture.core->stats();
  EXPECT_EQ(stats.n_running, 0);
  EXPECT_EQ(stats.n_waiting, 0);
  EXPECT_EQ(stats.blocks.used, 0);
  EXPECT_EQ(fixture.core->n_ended(), static_cast<int64_t>(requests.size()));
  EXPECT_EQ(fixture.core->n_left_queue(), static_cast<int64_t>(requests.size()));
  ASSERT_TRUE(fixture.model.faults().empty()) << fixture.model.faults().front();
  expect_as_alone(fixture, soak, requests, cancelled);
}

TEST(Soak, SharedPrefixesSmallPools) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    Soak soak{.options = {}, .class_matters = true, .n_blocks = 40 + static_cast<int>(seed)};
    soak.options.max_batch = 4 + static_cast<int>(seed % 13);
    soak.options.max_batched_tokens = 40 + static_cast<int>(seed * 7 % 200);
    run_soak(seed, soak);
  }
}

TEST(Soak, ExactPrefixKeepsTheBitsWhateverIsCached) {
  for (uint32_t seed = 100; seed < 130; ++seed) {
    Soak soak{.options = {}, .class_matters = true, .n_blocks = 40 + static_cast<int>(seed % 50)};
    soak.options.exact_prefix = true;
    soak.options.max_batch = 10;
    soak.options.max_batched_tokens = 150;
    run_soak(seed, soak);
  }
}

}  // namespace
}  // namespace baton::engine
