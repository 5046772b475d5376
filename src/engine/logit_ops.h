// The passes of the sampler over a whole row of logits: block maxima and block sums of
// exponentials.
//
// Rows are cut into blocks of kLogitBlock, so that what comes after (argmax, top k, nucleus,
// drawing) looks only into the few blocks that matter. All implementations give the same bits: sums
// have a fixed order and nothing is contracted to fused multiply-adds, so a request goes on
// identically on another machine. −∞ is a token that can't be chosen, +∞ counts as the largest
// float, NaN is told to the caller.
#pragma once

#include <cfloat>
#include <cstdint>
#include <span>

#include "base/cpu.h"

namespace baton::engine {

inline constexpr int kLogitBlock = 256;

/// Blocks of a row of `n` logits; the last one may be shorter.
[[nodiscard]] constexpr int n_logit_blocks(int n) { return (n + kLogitBlock - 1) / kLogitBlock; }

/// Which weight a logit x has: exp((x − max) · inverse_temperature), or 0 if the exponent is below
/// −reach. `max` is the largest logit there is.
struct Weighting {
  /// exp(−87) is about the smallest normal float: less has no weight.
  static constexpr float kMaxReach = 87.0F;

  float max = 0.0F;
  float inverse_temperature = 1.0F;
  float reach = kMaxReach;  ///< [0, kMaxReach]

  /// The exponent; NaN for NaN.
  [[nodiscard]] float exponent(float logit) const {
    return ((logit > FLT_MAX ? FLT_MAX : logit) - max) * inverse_temperature;
  }
  /// The same bits as in block_sums.
  [[nodiscard]] float weight(float logit) const;
};

/// One implementation of the passes. Stateless, thread-safe.
struct LogitOps {
  /// maxima [n_logit_blocks(n)]: the largest logit of each block, at most FLT_MAX; NaN if the block
  /// has one.
  void (*block_maxima)(std::span<const float> logits, float* maxima);
  /// sums [n_logit_blocks(n)]: the weights of each block, added. NaN has no weight. `maxima` as
  /// above: blocks without a weight are not even read.
  void (*block_sums)(std::span<const float> logits, const float* maxima, const Weighting& weighting,
                     float* sums);
};

/// The fastest implementation that `cpu` can run.
[[nodiscard]] const LogitOps& logit_ops(const CpuFeatures& cpu);

}  // namespace baton::engine
