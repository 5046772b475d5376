#include "router/metrics.h"

#include <vector>

namespace baton::router {
namespace {

// A decision takes microseconds; a queue of thousands that is looked through, a millisecond.
const std::vector<double> kDecisionBuckets = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5,
                                              1e-4, 2e-4, 5e-4, 1e-3, 1e-2};

constexpr std::array kOutcomes = {PartOutcome::kFinished, PartOutcome::kCancelled,
                                  PartOutcome::kFailed, PartOutcome::kGivenUp,
                                  PartOutcome::kNoRoom};
constexpr std::array kPlanReasons = {PlanReason::kUncached, PlanReason::kShort, PlanReason::kCached,
                                     PlanReason::kNoPrefillEngine, PlanReason::kBothRoles};
constexpr std::array kRetryReasons = {RetryReason::kEngineDown,    RetryReason::kGivenUp,
                                      RetryReason::kPrepRecv,      RetryReason::kRemoteSend,
                                      RetryReason::kStartGenerate, RetryReason::kCorrupt};

prometheus::Counter& part_counter(MetricsRegistry& registry, const std::string& id, Role role,
                                  PartOutcome outcome) {
  return registry.counter(
      {"baton_router_requests_total", "Parts of requests that the router gave to an engine."},
      {{"engine", id}, {"role", std::string(name(role))}, {"outcome", std::string(name(outcome))}});
}

prometheus::Counter& restart_counter(MetricsRegistry& registry, const std::string& id) {
  return registry.counter(
      {"baton_engine_restarts_total", "New incarnations of an engine after its first."},
      {{"engine", id}});
}

}  // namespace

std::string_view name(RetryReason reason) {
  switch (reason) {
    case RetryReason::kEngineDown:
      return "engine_down";
    case RetryReason::kGivenUp:
      return "given_up";
    case RetryReason::kPrepRecv:
      return "prep_recv";
    case RetryReason::kRemoteSend:
      return "remote_send";
    case RetryReason::kStartGenerate:
      return "start_generate";
    case RetryReason::kCorrupt:
      return "corrupt";
  }
  return "";
}

RouterMetrics::RouterMetrics(MetricsRegistry& registry)
    : registry_(registry),
      decision_(registry.histogram(
          {"baton_router_decision_seconds", "Time to pick an engine, computing."},
          kDecisionBuckets)),
      waiting_(registry.gauge({"baton_router_requests_waiting",
                               "Requests in the router's own queue, known to no engine."})) {
  for (const RetryReason reason : kRetryReasons) {
    retries_[static_cast<size_t>(reason)] = &registry.counter(
        {"baton_request_retries_total", "Requests, or choices of one, that were planned again."},
        {{"reason", std::string(name(reason))}});
  }
  for (const PlanReason reason : kPlanReasons) {
    plans_[static_cast<size_t>(reason)] = &registry.counter(
        {"baton_router_plan_total", "Plans made, and why."},
        {{"plan", std::string(plan_name(reason))}, {"reason", std::string(name(reason))}});
  }
}

void RouterMetrics::engine(const std::string& id, Role role) {
  for (const PartOutcome outcome : kOutcomes) part_counter(registry_, id, role, outcome);
  restart_counter(registry_, id);
}

void RouterMetrics::restarted(const std::string& id) { restart_counter(registry_, id).Increment(); }

void RouterMetrics::part_ended(const std::string& id, Role role, PartOutcome outcome) {
  part_counter(registry_, id, role, outcome).Increment();
}

}  // namespace baton::router
