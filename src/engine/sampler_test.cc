#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>

#include "base/thread_pool.h"
#include "engine/naive_sampler.h"
#include "engine/sampler_case.h"

namespace {
thread_local int64_t n_allocations = 0;  ///< by operator new, on this thread
}  // namespace

// The sanitizers have their own. Out of line, or the compiler sees malloc meet delete.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define BATON_COUNT_ALLOCATIONS 1
__attribute__((noinline)) void* operator new(size_t size) {
  ++n_allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace baton::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TokenId sample(const Case& c) {
  Sampler sampler;
  const auto sampled = sampler.sample(c.request());
  EXPECT_TRUE(sampled) << (sampled ? "" : sampled.error().message);
  return sampled ? sampled->token : -1;
}

SamplingParams greedy() { return {.temperature = 0.0F}; }

TEST(SamplerGreedy, TheLargestAndAmongEqualsTheLowestId) {
  EXPECT_EQ(sample({.logits = {1, 3, 2}, .params = greedy()}), 1);
  EXPECT_EQ(sample({.logits = {2, 3, 3, 3}, .params = greedy()}), 1);
  EXPECT_EQ(sample({.logits = {-5}, .params = greedy()}), 0);
  for (const int n : {2, 255, 256, 257, 5000}) {
    std::vector<float> logits = random_logits(n, 1);
    for (const int at : {0, n / 2, n - 1}) {
      Case c{.logits = logits, .params = greedy()};
      c.logits[static_cast<size_t>(at)] = 100.0F;
      EXPECT_EQ(sample(c), at);
      c.logits.back() = 100.0F;
      EXPECT_EQ(sample(c), at);
    }
  }
}

TEST(SamplerGreedy, TinyTemperaturesAreGreedy) {
  Case c{.logits = {1.0F, 1.0001F, 1.0F}};
  for (const float temperature : {0.0F, 1e-30F, 9e-6F}) {
    c.params.temperature = temperature;
    for (c.choice = 0; c.choice < 20; ++c.choice) EXPECT_EQ(sample(c), 1);
  }
}

/// Samples with the draw that the naive distribution makes of the same random number; near a border
/// between two tokens (rounding) both are right.
void expect_like_naive(Case c, int n_draws) {
  const std::vector<double> distribution = naive_distribution(c.request());
  Sampler sampler;
  for (int i = 0; i < n_draws; ++i) {
    c.choice = i;
    const auto position = static_cast<int64_t>(c.prompt.size() + c.output.size());
    const double random = uniform_random(c.params.seed, c.choice, position);
    const auto sampled = sampler.sample(c.request());
    ASSERT_TRUE(sampled);
    const auto token = static_cast<size_t>(sampled->token);
    double below = 0.0;
    for (size_t id = 0; id < token; ++id) below += distribution[id];
    ASSERT_GT(distribution[token], 0.0) << "draw " << i;
    ASSERT_GE(random, below - 1e-6) << "draw " << i;
    ASSERT_LE(random, below + distribution[token] + 1e-6) << "draw " << i;
  }
}

std::vector<SamplingParams> parameter_grid() {
  std::vector<SamplingParams> grid;
  for (const float temperature : {0.3F, 1.0F, 5.0F}) {
    for (const float top_p : {1.0F, 0.95F, 0.5F, 0.01F}) {
      for (const int top_k : {0, 1, 7, 300, 1500}) {
        for (const float min_p : {0.0F, 0.02F, 0.5F}) {
          grid.push_back({.temperature = temperature,
                          .top_p = top_p,
                          .top_k = top_k,
                          .min_p = min_p,
                          .seed = grid.size()});
        }
      }
    }
  }
  return grid;
}

TEST(Sampler, TruncationsAndTheirMixesAgreeWithTheNaiveOne) {
  for (const int n : {2, 40, 256, 3000}) {
    const std::vector<float> logits = random_logits(n, static_cast<unsigned>(n));
    for (const SamplingParams& params : parameter_grid()) {
      SCOPED_TRACE(testing::Message()
                   << n << " temperature " << params.temperature << " top_p " << params.top_p
                   << " top_k " << params.top_k << " min_p " << params.min_p);
      expect_like_naive({.logits = logits, .params = params, .prompt = {1}}, 25);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Sampler, PenaltiesBiasAndBansAgreeWithTheNaiveOne) {
  std::mt19937 random(7);
  const auto uniform = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  for (int i = 0; i < 200; ++i) {
    const int n = 20 + i * 3;
    const auto tokens = [&](int max) {
      std::vector<TokenId> ids(random() % static_cast<unsigned>(max));
      for (TokenId& id : ids) id = static_cast<TokenId>(random() % static_cast<unsigned>(n));
      return ids;
    };
    Case c;
    c.logits = random_logits(n, static_cast<unsigned>(i));
    c.prompt = tokens(30);
    c.output = tokens(30);
    c.banned = tokens(5);
    c.params = {.temperature = uniform(0.2F, 2.0F),
                .top_p = uniform(0.5F, 1.2F),
                .seed = random(),
                .presence_penalty = uniform(-2.0F, 2.0F),
                .frequency_penalty = uniform(-2.0F, 2.0F),
                .repetition_penalty = uniform(0.5F, 2.0F)};
    for (const TokenId id : tokens(10)) c.params.logit_bias.emplace_back(id, uniform(-5.0F, 5.0F));
    SCOPED_TRACE(i);
    expect_like_naive(c, 30);
    if (HasFatalFailure()) return;

    const std::vector<double> adjusted = naive_adjusted(c.request());
    c.params.temperature = 0.0F;
    const auto best = std::max_element(adjusted.begin(), adjusted.end()) - adjusted.begin();
    ASSERT_EQ(sample(c), best);
  }
}

// The order of bias and repetition penalty shows: (4 - 2) / 2 = 1 < 1.5, but 4 / 2 - 2 = 0 and for
// the negative (-1 + 2) / 2 = 0.5, but -1 * 2 + 2 = 0.
TEST(Sampler, BiasComesBeforePenalties) {
  Case c;
  c.logits = {4.0F, 0.9F};
  c.prompt = {0};
  c.params.temperature = 0.0F;
  c.params.repetition_penalty = 2.0F;
  c.params.logit_bias = {{0, -2.0F}};
  EXPECT_EQ(sample(c), 0);
  c.logits = {-1.0F, 0.4F};
  c.params.logit_bias = {{0, 2.0F}};
  EXPECT_EQ(sample(c), 0);
}

TEST(Sampler, PenaltiesCountWhatTheySay) {
  Case c{.logits = {5.0F, 4.0F, 3.5F}, .params = greedy(), .prompt = {0, 0, 0}, .output = {1, 1}};
  EXPECT_EQ(sample(c), 0);
  c.params.presence_penalty = 2.0F;
  EXPECT_EQ(sample(c), 0) << "the prompt is not penalised";
  c.output = {0};
  EXPECT_EQ(sample(c), 1);
  c.params = greedy();
  c.params.frequency_penalty = 0.4F;
  EXPECT_EQ(sample(c), 0) << "5 - 0.4";
  c.output = {0, 0, 0};
  EXPECT_EQ(sample(c), 1) << "5 - 1.2";
  c.output = {0, 0, 0, 1, 1};
  EXPECT_EQ(sample(c), 0) << "3.8 and 3.2, but 3.5";
  c.params = greedy();
  c.params.repetition_penalty = 1.5F;
  c.output = {};
  EXPECT_EQ(sample(c), 1) << "5 / 1.5 once, however often it occurs";
  c.output = {1};
  EXPECT_EQ(sample(c), 2);
}

TEST(Sampler, BiasAndBansAtTheirExtremes) {
  for (const float temperature : {0.0F, 1.0F}) {
    Case c{.logits = random_logits(1000, 3), .params = {.temperature = temperature}};
    c.params.logit_bias = {{777, 100.0F}};
    EXPECT_EQ(sample(c), 777);
    c.banned = {777};
    EXPECT_NE(sample(c), 777) << "a ban is stronger than any bias";
    c.banned.clear();
    c.params.logit_bias.clear();
    for (TokenId id = 0; id < 1000; ++id) {
      if (id != 555) c.banned.push_back(id);
    }
    EXPECT_EQ(sample(c), 555);
    c.params.top_p = 0.5F;
    c.params.top_k = 10;
    EXPECT_EQ(sample(c), 555);
    c.banned.push_back(555);
    Sampler sampler;
    const auto none = sampler.sample(c.request());
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().message, "no token is allowed");
  }
  Case c{.logits = {0.0F, 0.0F}};
  c.params.logit_bias = {{0, -100.0F}};
  for (c.choice = 0; c.choice < 100; ++c.choice) EXPECT_EQ(sample(c), 1);
}

TEST(Sampler, IdsThatAreNoTokensAreIgnored) {
  Case c{.logits = {1.0F, 2.0F},
         .params = greedy(),
         .prompt = {-1, 5},
         .output = {2, 1 << 30},
         .banned = {-7, 2}};
  c.params.repetition_penalty = 2.0F;
  c.params.logit_bias = {{9, 1.0F}, {-2, 1.0F}};
  EXPECT_EQ(sample(c), 1);
}

TEST(Sampler, TopKKeepsExactlyK) {
  Case c{.logits = std::vector<float>(600, 1.0F), .params = {.top_k = 3}};
  std::vector<int> n(600, 0);
  for (c.choice = 0; c.choice < 300; ++c.choice) ++n[static_cast<size_t>(sample(c))];
  for (size_t id = 0; id < n.size(); ++id) EXPECT_EQ(n[id] > 0, id < 3) << id;
  c.params.top_k = 1;
  for (c.choice = 0; c.choice < 50; ++c.choice) EXPECT_EQ(sample(c), 0) << "as greedy";
  c.params.top_k = 100000;
  bool late = false;
  for (c.choice = 0; c.choice < 50; ++c.choice) late |= sample(c) > 300;
  EXPECT_TRUE(late) << "more than the vocabulary: no limit";
}

TEST(Sampler, TheTightestTruncationsLeaveTheBest) {
  const std::vector<float> logits = random_logits(5000, 9, 0.1F);
  const TokenId best = sample({.logits = logits, .params = greedy()});
  Case c{.logits = logits};
  for (c.choice = 0; c.choice < 30; ++c.choice) {
    c.params = {.top_p = 1e-9F};
    EXPECT_EQ(sample(c), best);
    c.params = {.min_p = 1.0F};
    EXPECT_EQ(sample(c), best);
    c.params = {.temperature = 1.1e-5F};
    EXPECT_EQ(sample(c), best);
  }
  // min_p 1 keeps all that are as good as the best.
  c = {.logits = {2.0F, 1.0F, 2.0F}, .params = {.min_p = 1.0F}};
  std::vector<int> n(3, 0);
  for (c.choice = 0; c.choice < 50; ++c.choice) ++n[static_cast<size_t>(sample(c))];
  EXPECT_GT(n[0], 0);
  EXPECT_EQ(n[1], 0);
  EXPECT_GT(n[2], 0);
}

TEST(Sampler, NumbersThatAreNone) {
  for (const SamplingParams& params : parameter_grid()) {
    Sampler sampler;
    Case c{.logits = random_logits(700, 4), .params = params};
    c.logits[3] = kInf;
    c.logits[4] = -kInf;
    EXPECT_EQ(sample(c), 3);
    c.logits[600] = kNan;
    const auto sampled = sampler.sample(c.request());
    ASSERT_FALSE(sampled);
    EXPECT_EQ(sampled.error().code, ErrorCode::kInternal);
    EXPECT_NE(sampled.error().message.find("not a number"), std::string::npos);
    c.logits.assign(700, -kInf);
    EXPECT_FALSE(sampler.sample(c.request()));
    c.logits.assign(700, FLT_MAX);
    c.logits[0] = -FLT_MAX;
    c.params.repetition_penalty = 0.01F;
    c.prompt = {1, 2, 0};
    EXPECT_NE(sample(c), 0);
  }
}

TEST(SamplerLogprobs, AreTheModelsOwn) {
  Case c{.logits = random_logits(2000, 5), .params = greedy(), .prompt = {1, 2}, .n_logprobs = 5};
  const std::vector<double> expected = naive_logprobs(c.logits);
  c.params.logit_bias = {{1999, 100.0F}};
  c.params.repetition_penalty = 3.0F;
  Sampler sampler;
  for (const float temperature : {0.0F, 0.1F}) {
    c.params.temperature = temperature;
    const auto sampled = sampler.sample(c.request());
    ASSERT_TRUE(sampled && sampled->logprobs);
    EXPECT_EQ(sampled->token, 1999);
    EXPECT_NEAR(sampled->logprobs->logprob, expected[1999], 1e-5);
    ASSERT_EQ(sampled->logprobs->top.size(), 5U);
    std::vector<double> sorted = expected;
    std::ranges::sort(sorted, std::greater{});
    for (size_t i = 0; i < 5; ++i) {
      const TokenLogprob& top = sampled->logprobs->top[i];
      EXPECT_NEAR(top.logprob, sorted[i], 1e-5);
      EXPECT_NEAR(top.logprob, expected[static_cast<size_t>(top.id)], 1e-5);
    }
  }
  c.n_logprobs = 0;
  EXPECT_TRUE(sampler.sample(c.request())->logprobs->top.empty());
  c.n_logprobs.reset();
  EXPECT_FALSE(sampler.sample(c.request())->logprobs);
}

TEST(SamplerLogprobs, SumToOneAndKeepTheirOrder) {
  Sampler sampler;
  for (const int n : {1, 2, 300, 5000}) {
    const std::vector<float> logits = random_logits(n, 6, 8.0F);
    const LogprobEntry entry = sampler.logprobs(logits, 0, n + 10);
    ASSERT_EQ(entry.top.size(), static_cast<size_t>(n));
    double sum = 0.0;
    for (size_t i = 0; i < entry.top.size(); ++i) {
      sum += std::exp(static_cast<double>(entry.top[i].logprob));
      ASSERT_LE(entry.top[i].logprob, entry.top[i == 0 ? 0 : i - 1].logprob);
    }
    EXPECT_NEAR(sum, 1.0, 1e-5);
  }
}

TEST(SamplerLogprobs, EqualsByIdAndWhatIsImpossible) {
  Sampler sampler;
  std::vector<float> logits(700, 0.0F);
  logits[500] = 1.0F;
  logits[2] = -kInf;
  const LogprobEntry entry = sampler.logprobs(logits, 2, 4);
  EXPECT_EQ(entry.logprob, kLowestLogprob);
  ASSERT_EQ(entry.top.size(), 4U);
  EXPECT_EQ(entry.top[0].id, 500);
  EXPECT_EQ(entry.top[1].id, 0);
  EXPECT_EQ(entry.top[2].id, 1);
  EXPECT_EQ(entry.top[3].id, 3);
  EXPECT_EQ(sampler.logprobs(logits, 700, 0).logprob, kLowestLogprob);
  EXPECT_EQ(sampler.logprobs(logits, -1, 0).logprob, kLowestLogprob);
  logits[0] = kNan;
  EXPECT_EQ(sampler.logprobs(logits, 5, 3).logprob, kLowestLogprob);
  logits.assign(700, -kInf);
  EXPECT_EQ(sampler.logprobs(logits, 5, 3).logprob, kLowestLogprob);
  logits[9] = kInf;
  EXPECT_EQ(sampler.logprobs(logits, 9, 3).logprob, 0.0F);
}

TEST(Sampler, ResultsDependOnTheRequestAlone) {
  Sampler used;
  Sampler portable(logit_ops(CpuFeatures{}));
  for (unsigned i = 0; i < 200; ++i) {
    Case c{.logits = random_logits(100 + static_cast<int>(i * 37 % 900), i),
           .params = parameter_grid()[i % 180]};
    for (TokenId id = 0; id < 40; ++id) c.prompt.push_back(id);
    c.params.repetition_penalty = i % 2 == 0 ? 1.0F : 1.3F;
    c.n_logprobs = 3;
    Sampler fresh;
    const auto a = fresh.sample(c.request());
    const auto b = used.sample(c.request());
    const auto d = portable.sample(c.request());
    ASSERT_TRUE(a && b && d);
    ASSERT_EQ(a->token, b->token);
    ASSERT_EQ(a->token, d->token);
    ASSERT_EQ(a->logprobs->logprob, b->logprobs->logprob);
    ASSERT_EQ(a->logprobs->logprob, d->logprobs->logprob);
    // What was output before a migration may be part of the prompt after it.
    if (c.params.repetition_penalty == 1.0F) {
      c.output.assign(c.prompt.begin() + 10, c.prompt.end());
      c.prompt.resize(10);
      ASSERT_EQ(fresh.sample(c.request())->token, a->token);
    }
  }
}

TEST(Sampler, SteadyStepsAllocateNothing) {
#ifndef BATON_COUNT_ALLOCATIONS
  GTEST_SKIP() << "skipped: a sanitizer owns operator new";
#endif
  Sampler sampler;
  std::vector<Case> cases;
  for (const SamplingParams& params : parameter_grid()) {
    cases.push_back({.logits = random_logits(3000, 8), .params = params, .prompt = {1, 2, 3}});
    cases.back().params.repetition_penalty = 1.1F;
  }
  for (const Case& c : cases) ASSERT_TRUE(sampler.sample(c.request()));
  ASSERT_GT(n_allocations, 0);
  const int64_t before = n_allocations;
  for (const Case& c : cases) (void)sampler.sample(c.request());
  EXPECT_EQ(n_allocations, before);
}

TEST(Sampler, RowsInParallelAreAsOneByOne) {
  std::vector<Case> cases;
  for (unsigned i = 0; i < 64; ++i) {
    cases.push_back({.logits = random_logits(1000, i), .params = parameter_grid()[i * 2]});
  }
  ThreadPool pool({.n_threads = 3, .cpus = {}});
  std::vector<Sampler> samplers(3);
  std::vector<TokenId> tokens(cases.size());
  pool.run([&](int thread) {
    for (auto i = static_cast<size_t>(thread); i < cases.size(); i += 3) {
      tokens[i] = samplers[static_cast<size_t>(thread)].sample(cases[i].request())->token;
    }
  });
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(tokens[i], sample(cases[i])) << i;
}

}  // namespace
}  // namespace baton::engine
