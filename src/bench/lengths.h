// How long prompts and answers are: fixed, uniform, or log-normal.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "bench/random.h"

namespace baton::bench {

/// A distribution of lengths in tokens.
struct Lengths {
  enum class Kind { kUniform, kLogNormal };
  Kind kind = Kind::kUniform;
  int low = 1;   ///< no length is below it
  int high = 1;  ///< or above it
  double mean = 1;
  double sigma = 0;  ///< of the logarithm

  [[nodiscard]] int sample(Random& random) const;
};

inline constexpr int kMostTokens = 1 << 24;
/// Means of ShareGPT's prompts and answers in tokens. Source: the vLLM paper (Kwon et al. 2023,
/// figure 11). Its width is ours: a sigma of 1.
inline constexpr double kShareGptPrompt = 161;
inline constexpr double kShareGptOutput = 338;

/// "512", "100-800", "lognormal:MEAN:SIGMA", or "sharegpt", a log-normal of mean `sharegpt_mean`.
/// kInvalidArgument names `flag` and the text.
[[nodiscard]] Result<Lengths> parse_lengths(std::string_view flag, std::string_view text,
                                            double sharegpt_mean);

}  // namespace baton::bench
