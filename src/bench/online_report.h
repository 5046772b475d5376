// What a run of load found, as text and as JSON.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/summary.h"

namespace baton::bench {

/// What a report says about how it was measured.
struct OnlineSetting {
  std::string url;
  std::string model;
  std::string load;     ///< "Poisson arrivals, 4 requests/s, at most 32 at once"
  std::string lengths;  ///< "prompts 100-800 tokens, answers 128 tokens"
  std::string version;
  uint64_t seed = 0;
  int n_warm_up = 0;
  int n_cut = 0;  ///< requests whose lengths were cut to fit
  bool interrupted = false;
};

[[nodiscard]] std::string online_table(const OnlineSetting& setting, const Summary& summary);
/// docs/bench.md names the fields; those of `vllm bench serve` have its names.
[[nodiscard]] std::string online_json(const OnlineSetting& setting, const Summary& summary,
                                      const LoadResult& result, const Slo& slo);

/// The four latencies with their names in the JSON and in words.
struct NamedLatency {
  std::string_view key;    ///< "ttft"
  std::string_view label;  ///< "TTFT"
  const Distribution* distribution;
};
[[nodiscard]] std::vector<NamedLatency> latencies(const Summary& summary);

}  // namespace baton::bench
