// The engine's own series. Names and meanings are vLLM's where it has them, so that dashboards
// work.
#pragma once

#include <cstdint>

#include "base/metrics.h"
#include "engine/batch.h"
#include "engine/options.h"
#include "engine/scheduler.h"

namespace baton::engine {

/// Made at start-up, so that every series exists at zero. Used by the engine thread.
class EngineMetrics {
 public:
  EngineMetrics(MetricsRegistry& registry, const EngineOptions& options,
                const EngineLimits& limits);

  void step(const Batch& batch, int64_t duration_ns);
  /// Gauges from `stats`, counters from their totals.
  void publish(const EngineStats& stats, const SchedulerCounters& totals);
  void queued(int64_t duration_ns);
  void prefilled(int64_t duration_ns);
  void decoded(int64_t duration_ns);
  void put(int64_t n_bytes);
  /// All of a request's KV, in so much time of puts.
  void sent(int64_t put_ns);

 private:
  void publish_blocks(const kv::BlockCounts& blocks);

  prometheus::Gauge& running_;
  prometheus::Gauge& waiting_;
  prometheus::Gauge& kv_usage_;
  prometheus::Gauge& blocks_free_;
  prometheus::Gauge& blocks_used_;
  prometheus::Gauge& blocks_cached_;
  prometheus::Gauge& blocks_leased_;
  prometheus::Gauge& leases_active_;
  prometheus::Gauge& leases_quarantined_;
  prometheus::Counter& prefix_queries_;
  prometheus::Counter& prefix_hits_;
  prometheus::Counter& preemptions_;
  prometheus::Histogram& iteration_tokens_;
  prometheus::Histogram& step_prefill_;
  prometheus::Histogram& step_decode_;
  prometheus::Histogram& step_mixed_;
  prometheus::Histogram& queue_time_;
  prometheus::Histogram& prefill_time_;
  prometheus::Histogram& decode_time_;
  prometheus::Counter& transfer_bytes_;
  prometheus::Histogram& transfer_time_;
  SchedulerCounters published_;
};

}  // namespace baton::engine
