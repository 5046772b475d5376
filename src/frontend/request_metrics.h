// Request-level series, counted once per request as the client saw it. vLLM's names and buckets.
#pragma once

#include <array>
#include <cstdint>

#include "base/metrics.h"

namespace baton::frontend {

/// How a request ended; the label finished_reason of vllm:request_success_total.
enum class Outcome { kStop, kLength, kAbort, kError };

/// Thread-safe. The registry outlives it.
class RequestMetrics {
 public:
  explicit RequestMetrics(MetricsRegistry& registry);

  void add_prompt_tokens(int64_t n) { prompt_tokens_.Increment(static_cast<double>(n)); }
  void add_generation_tokens(int64_t n) { generation_tokens_.Increment(static_cast<double>(n)); }
  /// Arrival to first token sent.
  void first_token(double seconds) { first_token_.Observe(seconds); }
  /// Gap between two sent tokens of a choice; 0 between tokens sent together.
  void inter_token(double seconds) { inter_token_.Observe(seconds); }
  /// (E2E − TTFT) / (n − 1) of a choice of n ≥ 2 tokens.
  void per_output_token(double seconds) { per_output_token_.Observe(seconds); }
  /// Arrival to the last byte handed to the connection, of requests that completed.
  void end_to_end(double seconds) { end_to_end_.Observe(seconds); }
  void finished(Outcome outcome) { finished_[static_cast<size_t>(outcome)]->Increment(); }

 private:
  prometheus::Counter& prompt_tokens_;
  prometheus::Counter& generation_tokens_;
  prometheus::Histogram& first_token_;
  prometheus::Histogram& inter_token_;
  prometheus::Histogram& per_output_token_;
  prometheus::Histogram& end_to_end_;
  std::array<prometheus::Counter*, 4> finished_;
};

}  // namespace baton::frontend
