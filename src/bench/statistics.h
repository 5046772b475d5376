// Percentiles and moments of samples, as numpy defines them. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

namespace baton::bench {

/// What is said about a set of samples; all 0 if it is empty.
struct Distribution {
  size_t n = 0;
  double mean = 0;
  double std = 0;  ///< of the population (divided by n), as numpy.std
  double min = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

/// The q-quantile (q in [0, 1]) of ascending `sorted`, linear between the two nearest samples
/// (numpy.percentile's default); 0 if there are none.
[[nodiscard]] double quantile(const std::vector<double>& sorted, double q);

[[nodiscard]] Distribution describe(std::vector<double> samples);

}  // namespace baton::bench
