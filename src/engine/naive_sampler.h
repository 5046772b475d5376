// For tests only: the sampler written down as plainly as possible, in double and with full sorts.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "engine/sampler.h"

namespace baton::engine {

/// The logits after bans, bias and penalties.
inline std::vector<double> naive_adjusted(const SampleRequest& request) {
  const SamplingParams& params = request.params;
  std::vector<double> logits(request.logits.begin(), request.logits.end());
  for (const auto& ids : request.banned) {
    for (const TokenId id : ids) logits[static_cast<size_t>(id)] = -INFINITY;
  }
  for (const auto& [id, bias] : params.logit_bias) logits[static_cast<size_t>(id)] += bias;
  std::map<TokenId, int> n_output;
  for (const TokenId id : request.prompt) n_output[id] = 0;
  for (const TokenId id : request.output) ++n_output[id];
  for (const auto& [id, n] : n_output) {
    double& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    logit -= params.frequency_penalty * n + (n > 0 ? params.presence_penalty : 0.0F);
  }
  return logits;
}

/// The probability with which each token is drawn (temperature > 0).
inline std::vector<double> naive_distribution(const SampleRequest& request) {
  const SamplingParams& params = request.params;
  const std::vector<double> logits = naive_adjusted(request);
  std::vector<size_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return logits[i]; });
  std::vector<double> weights;
  for (const size_t i : order) {
    weights.push_back(std::exp((logits[i] - logits[order[0]]) / params.temperature));
  }
  size_t n_kept = weights.size();
  while (weights[n_kept - 1] < params.min_p) --n_kept;
  if (params.top_k > 0) n_kept = std::min(n_kept, static_cast<size_t>(params.top_k));
  if (params.top_p < 1.0F) {
    double total = 0.0;
    for (size_t i = 0; i < n_kept; ++i) total += weights[i];
    double above = 0.0;
    size_t n = 0;
    while (n < n_kept && (n == 0 || above < params.top_p * total)) above += weights[n++];
    n_kept = n;
  }
  double total = 0.0;
  for (size_t i = 0; i < n_kept; ++i) total += weights[i];
  std::vector<double> distribution(logits.size(), 0.0);
  for (size_t i = 0; i < n_kept; ++i) distribution[order[i]] = weights[i] / total;
  return distribution;
}

/// log softmax of the model's own logits.
inline std::vector<double> naive_logprobs(std::span<const float> logits) {
  double max = -INFINITY;
  for (const float x : logits) max = std::max(max, static_cast<double>(x));
  double total = 0.0;
  for (const float x : logits) total += std::exp(x - max);
  std::vector<double> logprobs;
  for (const float x : logits) logprobs.push_back(x - max - std::log(total));
  return logprobs;
}

}  // namespace baton::engine
