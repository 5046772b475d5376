// One row: greedy, plain, top_p, top_k, penalties and logprobs, for vocabularies of 49k and 262k.
#include "engine/sampler.h"

#include <benchmark/benchmark.h>

#include <random>

namespace baton::engine {
namespace {

/// Like a model's: most logits in a bell, some tokens far above.
std::vector<float> model_like_logits(int n_vocab) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  std::vector<float> logits(static_cast<size_t>(n_vocab));
  for (float& x : logits) x = normal(random);
  for (int i = 0; i < 50; ++i) {
    logits[random() % logits.size()] = 18.0F - 0.2F * static_cast<float>(i);
  }
  return logits;
}

void run(benchmark::State& state, const SamplingParams& params,
         std::optional<int> n_logprobs = {}) {
  const std::vector<float> logits = model_like_logits(static_cast<int>(state.range(0)));
  std::vector<TokenId> prompt(2000);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i * 13 % 30000);
  Sampler sampler;
  int choice = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.sample({.logits = logits,
                                             .params = params,
                                             .prompt = prompt,
                                             .output = {},
                                             .choice = ++choice,
                                             .n_logprobs = n_logprobs}));
  }
}

#define BATON_SAMPLER_BENCH(name, ...)                            \
  void name(benchmark::State& state) { run(state, __VA_ARGS__); } \
  BENCHMARK(name)->Arg(49152)->Arg(262144)->Unit(benchmark::kMicrosecond)

BATON_SAMPLER_BENCH(BM_Greedy, {.temperature = 0.0F});
BATON_SAMPLER_BENCH(BM_GreedyLogprobs20, {.temperature = 0.0F}, 20);
BATON_SAMPLER_BENCH(BM_Plain, {.temperature = 1.0F});
BATON_SAMPLER_BENCH(BM_TopP95, {.temperature = 0.8F, .top_p = 0.95F});
BATON_SAMPLER_BENCH(BM_TopP95Hot, {.temperature = 3.0F, .top_p = 0.95F});
BATON_SAMPLER_BENCH(BM_TopK50, {.top_k = 50});
BATON_SAMPLER_BENCH(BM_TopK20000, {.top_k = 20000});
BATON_SAMPLER_BENCH(BM_Gemma, {.temperature = 1.0F, .top_p = 0.95F, .top_k = 64});
BATON_SAMPLER_BENCH(BM_MinP, {.min_p = 0.05F});
BATON_SAMPLER_BENCH(BM_RepetitionPenaltyGreedy, {.temperature = 0.0F, .repetition_penalty = 1.1F});

}  // namespace
}  // namespace baton::engine
