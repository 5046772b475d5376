// The router's own series.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/metrics.h"
#include "base/role.h"
#include "router/plan_record.h"

namespace baton::router {

/// Why an attempt had to be made again; the label `reason` of baton_request_retries_total.
enum class RetryReason { kEngineDown, kGivenUp, kPrepRecv, kRemoteSend, kStartGenerate, kCorrupt };

/// "engine_down", "given_up", "prep_recv", "remote_send", "start_generate", "corrupt".
[[nodiscard]] std::string_view name(RetryReason reason);

/// Owner: the router's core. The registry outlives it.
class RouterMetrics {
 public:
  explicit RouterMetrics(MetricsRegistry& registry);

  /// Makes the engine's series (at zero) when its role becomes known.
  void engine(const std::string& id, Role role);
  void restarted(const std::string& id);
  void decided(double seconds) { decision_.Observe(seconds); }
  void planned(PlanReason reason) { plans_[static_cast<size_t>(reason)]->Increment(); }
  void part_ended(const std::string& id, Role role, PartOutcome outcome);
  void queued(size_t n_waiting) { waiting_.Set(static_cast<double>(n_waiting)); }
  void retried(RetryReason reason) { retries_[static_cast<size_t>(reason)]->Increment(); }

 private:
  MetricsRegistry& registry_;
  prometheus::Histogram& decision_;
  prometheus::Gauge& waiting_;
  std::array<prometheus::Counter*, 6> retries_;
  std::array<prometheus::Counter*, 5> plans_;
};

}  // namespace baton::router
