// From a row of logits to a token: penalties, bias, bans, temperature, truncation, the draw,
// logprobs.
//
// Order and meaning are vLLM's (vllm/v1/sample/sampler.py): banned ids, logit_bias, penalties
// (repetition, frequency, presence), then greedy, or temperature, min_p, top_k, top_p, draw. Two
// things are ours: among equal logits the lowest id wins everywhere (so top_k keeps exactly k, and
// top_k = 1 is greedy), and the draw inverts the cumulative distribution in the order of ids with a
// random number that depends on (seed, choice, position) alone.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/token_request.h"
#include "engine/logit_ops.h"

namespace baton::engine {

/// Below this, temperature means greedy (vLLM's _SAMPLING_EPS).
inline constexpr float kGreedyTemperature = 1e-5F;
/// The logprob of a token that the model rules out (−∞ has no place in JSON); vLLM's value.
inline constexpr float kLowestLogprob = -9999.0F;

/// A row of logits and for whom a token is wanted. Views only.
struct SampleRequest {
  std::span<const float> logits;  ///< [n_vocab], as the model gave them
  const SamplingParams& params;
  std::span<const TokenId> prompt;
  std::span<const TokenId> output;  ///< generated so far; position = the joint length of both
  int choice = 0;
  std::optional<int> n_logprobs;  ///< set: report the token's logprob and those of the best n
  /// Ids that can't be sampled now: before min_tokens, the client's stop ids and the model's.
  std::array<std::span<const TokenId>, 2> banned{};
};

struct SampledToken {
  TokenId token = 0;
  std::optional<LogprobEntry> logprobs;
};

/// A number in [0, 1), 53 bits, that depends on nothing but its arguments.
/// Source: SplitMix64's finaliser (Steele, Lea, Flood 2014), chained over the three.
[[nodiscard]] double uniform_random(uint64_t seed, int choice, int64_t position);

/// Scratch memory that grows to the largest need and stays: steady steps allocate nothing, besides
/// the logprobs that are returned. Results don't depend on what was sampled before.
/// Thread-compatible: rows can be sampled in parallel with one Sampler for each thread.
class Sampler {
 public:
  explicit Sampler(const LogitOps& ops = logit_ops(cpu_features())) : ops_(&ops) {}

  /// Fails (kInternal) if a logit is NaN or if no token is allowed.
  [[nodiscard]] Result<SampledToken> sample(const SampleRequest& request);
  /// The model's own log probability of `token` and the best `n` (at most all), best first, the
  /// lowest id first among equals. None is below kLowestLogprob; NaN counts as that.
  [[nodiscard]] LogprobEntry logprobs(std::span<const float> logits, TokenId token, int n);

 private:
  struct Candidate {
    float logit;
    TokenId id;
  };
  /// Comes after all others.
  static constexpr Candidate kWorst{-std::numeric_limits<float>::infinity(),
                                    std::numeric_limits<TokenId>::max()};
  /// The order of candidates: the best first, the lowest id first among equals.
  [[nodiscard]] static bool before(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }

  [[nodiscard]] std::span<const float> adjust(const SampleRequest& request);
  void penalize(const SampleRequest& request, std::span<float> logits);
  /// Fills maxima_; the largest logit, NaN if any is.
  float find_maxima(std::span<const float> logits);
  [[nodiscard]] TokenId first_with(std::span<const float> logits, float max) const;
  /// Fills sums_; needs maxima_.
  double total_weight(std::span<const float> logits, const Weighting& weighting);

  struct Nucleus {
    size_t size = 0;
    double weight = 0.0;
  };
  [[nodiscard]] TokenId draw_by_block(std::span<const float> logits, const Weighting& weighting,
                                      const Candidate& last, double left) const;
  [[nodiscard]] static Nucleus nucleus_of(std::span<const Candidate> sorted,
                                          const Weighting& weighting, double mass);
  TokenId draw_top_k(std::span<const float> logits, const Weighting& weighting,
                     const SamplingParams& params, double random);
  TokenId draw_nucleus(std::span<const float> logits, const Weighting& weighting, float top_p,
                       double random);
  void keep_best(std::span<const float> logits, int k);
  bool collect_shell(std::span<const float> logits, const Weighting& inner, const Weighting& outer);

  const LogitOps* ops_;
  std::vector<float> logits_;    ///< [n_vocab] adjusted copy
  std::vector<float> maxima_;    ///< [n_logit_blocks]
  std::vector<float> sums_;      ///< [n_logit_blocks]
  std::vector<int32_t> n_seen_;  ///< [n_vocab] all 0 between calls
  std::vector<TokenId> seen_;    ///< the ids with n_seen_ ≠ 0
  std::vector<Candidate> candidates_;
};

}  // namespace baton::engine
