// The numbers of a run of load, defined as in `vllm bench serve`:
//   TTFT  time to first token: from sending to the first chunk with a choice
//   ITL   inter-token latency: every gap between such chunks, of all requests together
//   E2E   from sending to the last such chunk
//   TPOT  time per output token: (E2E - TTFT) / (output tokens - 1), of requests with more than one
// Output tokens are those of the stream's usage, else chunks with text. Requests that failed or
// were cancelled count in no latency and no throughput.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/load.h"
#include "bench/statistics.h"

namespace baton::bench {

/// Limits in ms that a good request keeps; what is absent is not asked for. A request of a single
/// token has TPOT 0.
struct Slo {
  std::optional<double> ttft_ms;
  std::optional<double> tpot_ms;
  std::optional<double> e2e_ms;

  [[nodiscard]] bool empty() const { return !ttft_ms && !tpot_ms && !e2e_ms; }
  [[nodiscard]] bool kept_by(const RequestRecord& record) const;
};
/// "ttft=500,tpot=50,e2e=2000" (e2el is e2e), each at most once. kInvalidArgument names --slo.
[[nodiscard]] Result<Slo> parse_slo(std::string_view text);

struct Summary {
  size_t n_completed = 0;
  size_t n_failed = 0;
  size_t n_cancelled = 0;  ///< by stop()
  double duration_s = 0;   ///< from the start to the end of the last answer
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  size_t n_without_usage = 0;  ///< completed ones whose tokens were counted by chunks
  double requests_per_s = 0;
  double output_tokens_per_s = 0;
  double total_tokens_per_s = 0;
  /// Output tokens a second while all completed requests were generating at once: from the last
  /// first chunk to the first last chunk. None if there was no such time.
  std::optional<double> steady_output_tokens_per_s;
  std::optional<size_t> n_good;  ///< with an SLO
  double good_per_s = 0;
  Distribution ttft_ms;
  Distribution tpot_ms;
  Distribution itl_ms;
  Distribution e2e_ms;
  Distribution late_ms;  ///< how late requests were sent
  size_t peak_running = 0;
  std::map<std::string, size_t> errors;         ///< by kind; without "cancelled"
  std::map<std::string, std::string> examples;  ///< one text for each kind
};
[[nodiscard]] Summary summarize(const LoadResult& result, const Slo& slo);

/// Seconds since the start at which requests were sent and answers ended, and how many were under
/// way from then on.
[[nodiscard]] std::vector<std::pair<double, int>> running_over_time(const LoadResult& result);

/// Output tokens a second in intervals of `width_s` from the start: a request's tokens are spread
/// over its chunks. Completed requests only.
[[nodiscard]] std::vector<double> tokens_over_time(const LoadResult& result, double width_s);

}  // namespace baton::bench
