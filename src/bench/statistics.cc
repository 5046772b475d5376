#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace baton::bench {

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  const double at = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

Distribution describe(std::vector<double> samples) {
  Distribution out;
  out.n = samples.size();
  if (samples.empty()) return out;
  std::sort(samples.begin(), samples.end());
  const auto n = static_cast<double>(samples.size());
  for (const double x : samples) out.mean += x / n;
  for (const double x : samples) out.std += (x - out.mean) * (x - out.mean) / n;
  out.std = std::sqrt(out.std);
  out.min = samples.front();
  out.p50 = quantile(samples, 0.5);
  out.p90 = quantile(samples, 0.9);
  out.p99 = quantile(samples, 0.99);
  out.max = samples.back();
  return out;
}

}  // namespace baton::bench
