#include "frontend/request_metrics.h"

#include <vector>

namespace baton::frontend {
namespace {

// Bucket boundaries of vLLM (vllm/v1/metrics/loggers.py), so that its dashboards fit.
const std::vector<double> kFirstTokenBuckets = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                                0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                                20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
const std::vector<double> kTokenBuckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                           0.3,  0.4,   0.5,  0.75,  1.0, 2.5,  5.0,
                                           7.5,  10.0,  20.0, 40.0,  80.0};
const std::vector<double> kRequestBuckets = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                             5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                             60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};

}  // namespace

RequestMetrics::RequestMetrics(MetricsRegistry& registry)
    : prompt_tokens_(registry.counter({"vllm:prompt_tokens_total", "Prompt tokens processed."})),
      generation_tokens_(
          registry.counter({"vllm:generation_tokens_total", "Tokens generated and sent."})),
      first_token_(registry.histogram(
          {"vllm:time_to_first_token_seconds", "From arrival to the first token sent."},
          kFirstTokenBuckets)),
      inter_token_(registry.histogram(
          {"vllm:inter_token_latency_seconds", "Gap between two sent tokens."}, kTokenBuckets)),
      per_output_token_(
          registry.histogram({"vllm:request_time_per_output_token_seconds",
                              "Time per output token after the first, a request's mean."},
                             kTokenBuckets)),
      end_to_end_(registry.histogram(
          {"vllm:e2e_request_latency_seconds", "From arrival to the end of the answer."},
          kRequestBuckets)) {
  size_t i = 0;
  for (const char* reason : {"stop", "length", "abort", "error"}) {  // in the order of Outcome
    finished_[i++] = &registry.counter({"vllm:request_success_total", "Requests ended, by reason."},
                                       {{"finished_reason", reason}});
  }
}

}  // namespace baton::frontend
