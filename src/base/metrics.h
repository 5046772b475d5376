// Prometheus metrics: a registry that every layer registers its series in, written as text at
// /metrics.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace prometheus {
class Registry;
}

namespace baton {

using Labels = std::map<std::string, std::string>;

struct MetricName {
  std::string name;
  std::string help;
};

/// Owner of all series of a process. Thread-safe; the references live as long as the registry.
/// Asking twice for the same name and labels gives the same series. A series exists (at zero) from
/// the moment it is asked for: ask for all of them at start-up.
class MetricsRegistry {
 public:
  /// `common` labels (model_name, …) are added to every series.
  explicit MetricsRegistry(Labels common = {});
  ~MetricsRegistry();

  prometheus::Counter& counter(const MetricName& name, const Labels& labels = {});
  prometheus::Gauge& gauge(const MetricName& name, const Labels& labels = {});
  /// `buckets`: ascending upper bounds, +Inf is implied.
  prometheus::Histogram& histogram(const MetricName& name, const std::vector<double>& buckets,
                                   const Labels& labels = {});

  /// Prometheus text exposition format 0.0.4.
  [[nodiscard]] std::string text() const;

 private:
  Labels common_;
  std::unique_ptr<prometheus::Registry> registry_;
};

}  // namespace baton
