// What is going to be asked of a server: when, how long, and which tokens. All of it is a function
// of the options, so a run can be repeated.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bench/lengths.h"
#include "bench/trace.h"

namespace baton::bench {

/// A run of tokens that is the same wherever its seed is the same.
struct Segment {
  uint64_t seed = 0;
  int n_tokens = 0;
};

struct PlannedRequest {
  double due_s = 0;  ///< since the start of the run
  std::vector<Segment> prompt;
  int n_output = 1;

  [[nodiscard]] int n_prompt() const;
};

enum class Arrival { kPoisson, kFixed };

/// When `n` requests are due, in seconds: gaps of 1 / rate, or exponential ones of that mean, then
/// scaled so that the last is due at n / rate (as `vllm bench serve` does: the offered rate is the
/// same for every seed). The first comes after a gap too. Rate 0: all at once.
[[nodiscard]] std::vector<double> arrivals(int n, double rate, Arrival arrival, uint64_t seed);

struct SyntheticOptions {
  int n_requests = 100;
  double rate = 0;  ///< requests/s; 0 = all at once
  Arrival arrival = Arrival::kPoisson;
  Lengths prompt{};
  Lengths output{};
  int shared_prefix = 0;  ///< tokens at the start of every prompt, in front of its own
  uint64_t seed = 0;
};
[[nodiscard]] std::vector<PlannedRequest> synthetic(const SyntheticOptions& options);

struct ReplayOptions {
  double speed = 1;         ///< of time
  double length_scale = 1;  ///< of prompts and answers, and of the blocks that are shared
  uint64_t seed = 0;
};
/// Blocks of equal hash_ids become equal tokens; what has no id is a request's own.
[[nodiscard]] std::vector<PlannedRequest> replay(std::span<const TraceRow> rows,
                                                 const ReplayOptions& options);

struct Fit {
  int max_prompt = 0;  ///< tokens; 0 = no limit
  int max_output = 0;
  int max_total = 0;  ///< prompt, answer and `reserve` together: the model's context
  int reserve = 0;    ///< tokens that a server adds to a prompt (BOS, a chat template)
};
/// Cuts what is too long: answers to their limit and, where both don't fit, to a half of the
/// context at most; then prompts, at their end. The number of requests that were cut.
int fit(std::vector<PlannedRequest>& requests, const Fit& limits);

}  // namespace baton::bench
