#include "engine/metrics.h"

#include <algorithm>
#include <string>

namespace baton::engine {
namespace {

// vLLM's buckets (vllm/v1/metrics/loggers.py), so that quantiles of both can be compared.
const std::vector<double> kRequestSeconds = {0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10,   15,  20,
                                             30,  40,  50,  60,  120, 240, 480, 960, 1920, 7680};
const std::vector<double> kIterationTokens = {1,   8,    16,   32,   64,   128,  256,
                                              512, 1024, 2048, 4096, 8192, 16384};
const std::vector<double> kStepSeconds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
                                          0.2,   0.5,   1.0,   2.0,  5.0,  10};

const std::vector<double> kTransferSeconds = {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01,
                                              0.02,   0.05,   0.1,    0.2,   0.5,   1.0,   2.0};

double seconds(int64_t ns) { return static_cast<double>(std::max<int64_t>(ns, 0)) * 1e-9; }

prometheus::Gauge& blocks_gauge(MetricsRegistry& registry, const char* state) {
  return registry.gauge({"baton_kv_blocks", "KV blocks by state."}, {{"state", state}});
}

prometheus::Gauge& leases_gauge(MetricsRegistry& registry, const char* state) {
  return registry.gauge({"baton_leases", "Leases on KV blocks by state."}, {{"state", state}});
}

prometheus::Histogram& step_histogram(MetricsRegistry& registry, const char* kind) {
  return registry.histogram({"baton_step_seconds", "Time of one engine step, by what it computed."},
                            kStepSeconds, {{"kind", kind}});
}

}  // namespace

EngineMetrics::EngineMetrics(MetricsRegistry& registry, const EngineOptions& options,
                             const EngineLimits& limits)
    : running_(registry.gauge({"vllm:num_requests_running", "Requests in the batch."})),
      waiting_(registry.gauge({"vllm:num_requests_waiting", "Requests waiting to run."})),
      kv_usage_(registry.gauge({"vllm:kv_cache_usage_perc", "KV blocks held, 1 = all of them."})),
      blocks_free_(blocks_gauge(registry, "free")),
      blocks_used_(blocks_gauge(registry, "used")),
      blocks_cached_(blocks_gauge(registry, "cached")),
      blocks_leased_(blocks_gauge(registry, "leased")),
      leases_active_(leases_gauge(registry, "active")),
      leases_quarantined_(leases_gauge(registry, "quarantined")),
      prefix_queries_(registry.counter(
          {"vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache."})),
      prefix_hits_(registry.counter(
          {"vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache."})),
      preemptions_(registry.counter(
          {"vllm:num_preemptions_total", "Sequences whose blocks were taken for others."})),
      iteration_tokens_(
          registry.histogram({"vllm:iteration_tokens_total", "Tokens computed in one engine step."},
                             kIterationTokens)),
      step_prefill_(step_histogram(registry, "prefill")),
      step_decode_(step_histogram(registry, "decode")),
      step_mixed_(step_histogram(registry, "mixed")),
      queue_time_(registry.histogram({"vllm:request_queue_time_seconds", "Arrival to admission."},
                                     kRequestSeconds)),
      prefill_time_(registry.histogram(
          {"vllm:request_prefill_time_seconds", "Admission to first token."}, kRequestSeconds)),
      decode_time_(registry.histogram(
          {"vllm:request_decode_time_seconds", "First token to last token."}, kRequestSeconds)),
      transfer_bytes_(registry.counter(
          {"baton_kv_transfer_bytes_total", "KV put into other engines' memory."})),
      transfer_time_(registry.histogram(
          {"baton_kv_transfer_seconds", "Time of all puts of one request."}, kTransferSeconds)) {
  registry
      .gauge({"vllm:cache_config_info", "How the KV cache is laid out; always 1."},
             {{"block_size", std::to_string(limits.block_tokens)},
              {"num_gpu_blocks", std::to_string(limits.n_blocks)},
              {"cache_dtype", options.kv_type == TensorType::kF32 ? "f32" : "bf16"},
              {"enable_prefix_caching", "True"}})
      .Set(1);
}

void EngineMetrics::step(const Batch& batch, int64_t duration_ns) {
  iteration_tokens_.Observe(batch.n_tokens());
  const auto n_decodes = std::count_if(batch.items.begin(), batch.items.end(),
                                       [](const BatchItem& item) { return item.decodes; });
  auto& histogram = n_decodes == 0                                         ? step_prefill_
                    : static_cast<size_t>(n_decodes) == batch.items.size() ? step_decode_
                                                                           : step_mixed_;
  histogram.Observe(seconds(duration_ns));
}

void EngineMetrics::publish(const EngineStats& stats, const SchedulerCounters& totals) {
  running_.Set(stats.n_running);
  waiting_.Set(stats.n_waiting);
  publish_blocks(stats.blocks);
  leases_active_.Set(stats.n_leases);
  leases_quarantined_.Set(stats.n_quarantined);
  prefix_queries_.Increment(
      static_cast<double>(totals.n_prefix_queries - published_.n_prefix_queries));
  prefix_hits_.Increment(static_cast<double>(totals.n_prefix_hits - published_.n_prefix_hits));
  preemptions_.Increment(static_cast<double>(totals.n_preemptions - published_.n_preemptions));
  published_ = totals;
}

void EngineMetrics::publish_blocks(const kv::BlockCounts& blocks) {
  blocks_free_.Set(blocks.free);
  blocks_used_.Set(blocks.used);
  blocks_cached_.Set(blocks.cached);
  blocks_leased_.Set(blocks.leased);
  const int held = blocks.used + blocks.leased;
  const int all = held + blocks.free + blocks.cached;
  kv_usage_.Set(all == 0 ? 0 : static_cast<double>(held) / all);
}

void EngineMetrics::queued(int64_t duration_ns) { queue_time_.Observe(seconds(duration_ns)); }
void EngineMetrics::prefilled(int64_t duration_ns) { prefill_time_.Observe(seconds(duration_ns)); }
void EngineMetrics::decoded(int64_t duration_ns) { decode_time_.Observe(seconds(duration_ns)); }
void EngineMetrics::put(int64_t n_bytes) {
  transfer_bytes_.Increment(static_cast<double>(n_bytes));
}
void EngineMetrics::sent(int64_t put_ns) { transfer_time_.Observe(seconds(put_ns)); }

}  // namespace baton::engine
