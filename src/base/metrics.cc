#include "base/metrics.h"

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace baton {

MetricsRegistry::MetricsRegistry(Labels common)
    : common_(std::move(common)), registry_(std::make_unique<prometheus::Registry>()) {}
MetricsRegistry::~MetricsRegistry() = default;

prometheus::Counter& MetricsRegistry::counter(const MetricName& name, const Labels& labels) {
  return prometheus::BuildCounter()
      .Name(name.name)
      .Help(name.help)
      .Labels(common_)
      .Register(*registry_)
      .Add(labels);
}

prometheus::Gauge& MetricsRegistry::gauge(const MetricName& name, const Labels& labels) {
  return prometheus::BuildGauge()
      .Name(name.name)
      .Help(name.help)
      .Labels(common_)
      .Register(*registry_)
      .Add(labels);
}

prometheus::Histogram& MetricsRegistry::histogram(const MetricName& name,
                                                  const std::vector<double>& buckets,
                                                  const Labels& labels) {
  return prometheus::BuildHistogram()
      .Name(name.name)
      .Help(name.help)
      .Labels(common_)
      .Register(*registry_)
      .Add(labels, prometheus::Histogram::BucketBoundaries(buckets));
}

std::string MetricsRegistry::text() const {
  return prometheus::TextSerializer().Serialize(registry_->Collect());
}

}  // namespace baton
