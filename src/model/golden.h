// Golden outputs of tests/data/golden: read, and compared with logits. For tests only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/token_request.h"

namespace baton::model {

/// One prompt of a golden file; empty where the file has no such thing.
struct GoldenPrompt {
  std::string name;
  std::vector<TokenId> ids;
  std::vector<TokenId> greedy_ids;
  /// The five best, best first: tiny models, after each of `ids`; real ones, before each of
  /// `greedy_ids`.
  std::vector<std::vector<TokenLogprob>> top5;
  std::vector<float> logits_last;  ///< [n_vocab] after the last of `ids` (tiny models)
  double logits_std = 0.0;         ///< their standard deviation
  double prompt_nll = 0.0;         ///< nats over ids[1:]
};

/// Reads a golden.json.gz of a tiny or of a real model.
[[nodiscard]] Result<std::vector<GoldenPrompt>> read_golden(const std::string& path);
/// tests/data/golden of the source tree.
[[nodiscard]] std::string golden_dir();

/// Teacher-forced comparison, position by position.
struct Agreement {
  int n_positions = 0;
  double sum_delta = 0.0;  ///< |Δ logprob| of the reference's best
  double max_delta = 0.0;
  int n_misses = 0;                ///< our arg max is another
  double max_missed_margin = 0.0;  ///< largest margin (reference's best minus second) of a miss
  [[nodiscard]] double mean_delta() const {
    return n_positions > 0 ? sum_delta / n_positions : 0.0;
  }
  void add(const Agreement& other);
};
/// Compares logits [n_vocab] of one position with the reference's five best.
void compare(std::span<const float> logits, std::span<const TokenLogprob> top5,
             Agreement& agreement);
/// Natural log of the softmax at `id`, in double.
[[nodiscard]] double log_probability(std::span<const float> logits, TokenId id);

}  // namespace baton::model
