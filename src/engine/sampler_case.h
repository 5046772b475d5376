// For tests only: a sampling request that owns what it views, and logits for it.
#pragma once

#include <optional>
#include <random>
#include <vector>

#include "engine/sampler.h"

namespace baton::engine {

inline std::vector<float> random_logits(int n, unsigned seed, float spread = 3.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> logits(static_cast<size_t>(n));
  for (float& x : logits) x = normal(random);
  return logits;
}

/// A request that outlives its views.
struct Case {
  std::vector<float> logits;
  SamplingParams params{};
  std::vector<TokenId> prompt{};
  std::vector<TokenId> output{};
  std::vector<TokenId> banned{};
  int choice = 0;
  std::optional<int> n_logprobs{};

  [[nodiscard]] SampleRequest request() const {
    return {.logits = logits,
            .params = params,
            .prompt = prompt,
            .output = output,
            .choice = choice,
            .n_logprobs = n_logprobs,
            .banned = {banned}};
  }
};

}  // namespace baton::engine
