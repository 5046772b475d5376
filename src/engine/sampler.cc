#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace baton::engine {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
/// Added to a token's count of occurrences in the output if it is in the prompt.
constexpr int32_t kInPrompt = 1 << 30;
/// Up to so many best tokens are kept in a heap; beyond, selecting from all of them is faster.
constexpr int kMaxHeap = 1024;
/// The nucleus is looked for among logits with exponents ≥ −this first, then twice as far, …:
/// nearly always it lies there, and few blocks have such logits.
constexpr float kFirstReach = 6.0F;
/// Of a Weighting in which nothing has a weight.
constexpr float kNoReach = -1.0F;
/// Sorting so many candidates takes about as long as one more pass over the logits.
constexpr size_t kMaxShell = 2048;

uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

bool is_token(TokenId id, std::span<const float> logits) {
  return id >= 0 && static_cast<size_t>(id) < logits.size();
}

std::span<const float> block_of(std::span<const float> logits, size_t block) {
  const size_t begin = block * kLogitBlock;
  return logits.subspan(begin, std::min<size_t>(kLogitBlock, logits.size() - begin));
}

}  // namespace

double uniform_random(uint64_t seed, int choice, int64_t position) {
  const uint64_t stream = mix(mix(seed) ^ static_cast<uint64_t>(choice));
  return static_cast<double>(mix(stream ^ static_cast<uint64_t>(position)) >> 11) * 0x1p-53;
}

Result<SampledToken> Sampler::sample(const SampleRequest& request) {
  const SamplingParams& params = request.params;
  SampledToken sampled;
  const std::span<const float> logits = adjust(request);
  const float max = find_maxima(logits);
  if (std::isnan(max)) {
    return fail(ErrorCode::kInternal, "the model computed a logit that is not a number");
  }
  if (max == kMinusInfinity) return fail(ErrorCode::kInternal, "no token is allowed");

  if (params.temperature < kGreedyTemperature) {
    sampled.token = first_with(logits, max);
  } else {
    const Weighting weighting{.max = max,
                              .inverse_temperature = 1.0F / params.temperature,
                              .reach = params.min_p > 0.0F
                                           ? std::min(-std::log(params.min_p), Weighting::kMaxReach)
                                           : Weighting::kMaxReach};
    const auto position = static_cast<int64_t>(request.prompt.size() + request.output.size());
    const double random = uniform_random(params.seed, request.choice, position);
    if (params.top_k > 0 && static_cast<size_t>(params.top_k) < logits.size()) {
      sampled.token = draw_top_k(logits, weighting, params, random);
    } else if (params.top_p < 1.0F) {
      sampled.token = draw_nucleus(logits, weighting, params.top_p, random);
    } else {
      const double total = total_weight(logits, weighting);
      sampled.token = draw_by_block(logits, weighting, kWorst, random * total);
    }
  }
  if (request.n_logprobs) {
    sampled.logprobs = logprobs(request.logits, sampled.token, *request.n_logprobs);
  }
  return sampled;
}

LogprobEntry Sampler::logprobs(std::span<const float> logits, TokenId token, int n) {
  // Without a number among them all logprobs are the lowest.
  const float max = find_maxima(logits);
  const double log_total =
      max > kMinusInfinity ? std::log(total_weight(logits, Weighting{.max = max})) : 0.0;
  const auto logprob = [&](float logit) {
    const double value = static_cast<double>(std::min(logit, FLT_MAX)) - max - log_total;
    return value > kLowestLogprob ? static_cast<float>(value) : kLowestLogprob;
  };
  LogprobEntry entry;
  entry.logprob =
      is_token(token, logits) ? logprob(logits[static_cast<size_t>(token)]) : kLowestLogprob;
  if (n <= 0) return entry;
  keep_best(logits, n);
  entry.top.reserve(candidates_.size());
  for (const Candidate& best : candidates_) entry.top.push_back({best.id, logprob(best.logit)});
  return entry;
}

// The logits themselves where nothing changes them, else a changed copy.
std::span<const float> Sampler::adjust(const SampleRequest& request) {
  const SamplingParams& params = request.params;
  const bool penalties = params.repetition_penalty != 1.0F || params.presence_penalty != 0.0F ||
                         params.frequency_penalty != 0.0F;
  const bool bans = !request.banned[0].empty() || !request.banned[1].empty();
  if (!penalties && !bans && params.logit_bias.empty()) return request.logits;
  logits_.assign(request.logits.begin(), request.logits.end());
  for (const auto& ids : request.banned) {
    for (const TokenId id : ids) {
      if (is_token(id, logits_)) logits_[static_cast<size_t>(id)] = kMinusInfinity;
    }
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (is_token(id, logits_)) logits_[static_cast<size_t>(id)] += bias;
  }
  if (penalties) penalize(request, logits_);
  return logits_;
}

void Sampler::penalize(const SampleRequest& request, std::span<float> logits) {
  if (n_seen_.size() < logits.size()) n_seen_.resize(logits.size(), 0);
  const auto see = [&](TokenId id, int32_t in_prompt, int32_t in_output) {
    if (!is_token(id, logits)) return;
    int32_t& n = n_seen_[static_cast<size_t>(id)];
    if (n == 0) seen_.push_back(id);
    n = (n | in_prompt) + in_output;
  };
  const SamplingParams& params = request.params;
  if (params.repetition_penalty != 1.0F) {
    for (const TokenId id : request.prompt) see(id, kInPrompt, 0);
  }
  for (const TokenId id : request.output) see(id, 0, 1);
  for (const TokenId id : seen_) {
    float& logit = logits[static_cast<size_t>(id)];
    const int32_t n_output = n_seen_[static_cast<size_t>(id)] & ~kInPrompt;
    logit = logit > 0.0F ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    logit -= params.frequency_penalty * static_cast<float>(n_output);
    if (n_output > 0) logit -= params.presence_penalty;
    n_seen_[static_cast<size_t>(id)] = 0;
  }
  seen_.clear();
}

float Sampler::find_maxima(std::span<const float> logits) {
  maxima_.resize(static_cast<size_t>(n_logit_blocks(static_cast<int>(logits.size()))));
  ops_->block_maxima(logits, maxima_.data());
  float max = kMinusInfinity;
  for (const float block_max : maxima_) {
    if (!(block_max <= max)) max = block_max;
    if (std::isnan(max)) break;
  }
  return max;
}

TokenId Sampler::first_with(std::span<const float> logits, float max) const {
  const auto block = static_cast<size_t>(std::ranges::find(maxima_, max) - maxima_.begin());
  const auto values = block_of(logits, block);
  const auto found = std::ranges::find_if(values, [&](float x) { return x >= max; });
  return static_cast<TokenId>(block * kLogitBlock) + static_cast<TokenId>(found - values.begin());
}

double Sampler::total_weight(std::span<const float> logits, const Weighting& weighting) {
  sums_.resize(maxima_.size());
  ops_->block_sums(logits, maxima_.data(), weighting, sums_.data());
  double total = 0.0;
  for (const float sum : sums_) total += sum;
  return total;
}

// The token at which the weights, added in the order of ids, exceed `left`. Only tokens not after
// `last` count, and sums_ are theirs. Rounding may leave `left` a hair above what the weights add
// up to: the last token with a weight takes what is left.
TokenId Sampler::draw_by_block(std::span<const float> logits, const Weighting& weighting,
                               const Candidate& last, double left) const {
  size_t block = 0;
  for (size_t b = 0; b < sums_.size(); ++b) {
    if (sums_[b] <= 0.0F) continue;
    block = b;
    if (left < sums_[b]) break;
    left -= sums_[b];
  }
  auto id = static_cast<TokenId>(block * kLogitBlock);
  TokenId drawn = id;
  for (const float logit : block_of(logits, block)) {
    const Candidate candidate{logit, id++};
    const float weight = weighting.weight(logit);
    if (weight <= 0.0F || before(last, candidate)) continue;
    drawn = candidate.id;
    if (left < weight) break;
    left -= weight;
  }
  return drawn;
}

// How many of `sorted` it takes, at least one, to weigh `mass`.
Sampler::Nucleus Sampler::nucleus_of(std::span<const Candidate> sorted, const Weighting& weighting,
                                     double mass) {
  Nucleus nucleus;
  for (const Candidate& candidate : sorted) {
    nucleus.weight += weighting.weight(candidate.logit);
    ++nucleus.size;
    if (nucleus.weight >= mass) break;
  }
  return nucleus;
}

TokenId Sampler::draw_top_k(std::span<const float> logits, const Weighting& weighting,
                            const SamplingParams& params, double random) {
  keep_best(logits, params.top_k);
  double mass = 0.0;
  for (const Candidate& candidate : candidates_) mass += weighting.weight(candidate.logit);
  if (params.top_p < 1.0F) mass *= static_cast<double>(params.top_p);
  const Nucleus nucleus = nucleus_of(candidates_, weighting, mass);
  candidates_.resize(nucleus.size);
  std::ranges::sort(candidates_, {}, &Candidate::id);
  double left = random * nucleus.weight;
  TokenId drawn = candidates_.front().id;
  for (const Candidate& candidate : candidates_) {
    const float weight = weighting.weight(candidate.logit);
    if (weight <= 0.0F) continue;
    drawn = candidate.id;
    if (left < weight) break;
    left -= weight;
  }
  return drawn;
}

// The nucleus is a core, all logits within inner.reach of the maximum, and the best of the shell
// between inner.reach and outer.reach. Passes over the block sums narrow the shell until it is
// small; only the shell is ever sorted.
TokenId Sampler::draw_nucleus(std::span<const float> logits, const Weighting& weighting,
                              float top_p, double random) {
  const double mass = static_cast<double>(top_p) * total_weight(logits, weighting);
  Weighting inner = weighting;
  inner.reach = kNoReach;
  double inner_mass = 0.0;
  Weighting outer = weighting;
  const auto narrow = [&](float reach) {
    Weighting middle = weighting;
    middle.reach = reach;
    const double middle_mass = total_weight(logits, middle);
    if (middle_mass >= mass) {
      outer = middle;
    } else {
      inner = middle;
      inner_mass = middle_mass;
    }
  };
  for (float reach = kFirstReach; reach < outer.reach; reach *= 2.0F) narrow(reach);
  while (!collect_shell(logits, inner, outer))
    narrow(inner.reach + (outer.reach - inner.reach) / 2);

  std::ranges::sort(candidates_, before);
  const Nucleus shell = nucleus_of(candidates_, weighting, mass - inner_mass);
  double left = total_weight(logits, inner);
  for (size_t i = 0; i < shell.size; ++i) {
    float& sum = sums_[static_cast<size_t>(candidates_[i].id) / kLogitBlock];
    sum += weighting.weight(candidates_[i].logit);
  }
  left = random * (left + shell.weight);
  const Candidate last = shell.size > 0 ? candidates_[shell.size - 1] : kWorst;
  return draw_by_block(logits, weighting, last, left);
}

// Into candidates_: the best k (all, if there are not so many), best first.
void Sampler::keep_best(std::span<const float> logits, int k) {
  std::vector<Candidate>& best = candidates_;
  best.clear();
  const bool heap = k <= kMaxHeap;
  for (size_t block = 0; block < maxima_.size(); ++block) {
    const bool full = heap && std::ssize(best) == k;
    if (!(maxima_[block] > (full ? best.front().logit : kMinusInfinity))) continue;
    auto id = static_cast<TokenId>(block * kLogitBlock);
    for (const float logit : block_of(logits, block)) {
      const Candidate candidate{logit, id++};
      if (!(logit > kMinusInfinity)) continue;
      if (!heap || std::ssize(best) < k) {
        best.push_back(candidate);
        if (heap) std::ranges::push_heap(best, before);
      } else if (before(candidate, best.front())) {
        std::ranges::pop_heap(best, before);
        best.back() = candidate;
        std::ranges::push_heap(best, before);
      }
    }
  }
  if (std::ssize(best) > k) {
    std::ranges::nth_element(best, best.begin() + k, before);
    best.resize(static_cast<size_t>(k));
  }
  std::ranges::sort(best, before);
}

// Into candidates_: what has a weight by `outer` and none by `inner`. False if that is too much and
// the shell can be made thinner.
bool Sampler::collect_shell(std::span<const float> logits, const Weighting& inner,
                            const Weighting& outer) {
  const float middle = inner.reach + (outer.reach - inner.reach) / 2;
  const bool can_narrow = inner.reach < middle && middle < outer.reach;
  candidates_.clear();
  for (size_t block = 0; block < maxima_.size(); ++block) {
    if (!(outer.exponent(maxima_[block]) >= -outer.reach)) continue;
    auto id = static_cast<TokenId>(block * kLogitBlock);
    for (const float logit : block_of(logits, block)) {
      const Candidate candidate{logit, id++};
      const float exponent = outer.exponent(logit);
      if (exponent >= -outer.reach && !(exponent >= -inner.reach)) candidates_.push_back(candidate);
    }
    if (can_narrow && candidates_.size() > kMaxShell) return false;
  }
  return true;
}

}  // namespace baton::engine
