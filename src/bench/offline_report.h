// What the offline benchmark found, as text and as JSON.
#pragma once

#include <string>

#include "bench/offline.h"

namespace baton::bench {

/// What a report says about where it was measured.
struct OfflineSetting {
  std::string model;  ///< as it was asked for
  std::string architecture;
  std::string kernels;
  std::string prefill_activations;  ///< "int16", "int8"
  std::string cpu_features;
  std::string version;
  int n_threads = 1;
};

/// Rates of the machine, then a table with a line for each point: tokens/s, and the roofline.
[[nodiscard]] std::string offline_table(const OfflineSetting& setting, const OfflineResult& result);
/// docs/bench.md names the fields.
[[nodiscard]] std::string offline_json(const OfflineSetting& setting, const OfflineResult& result);

}  // namespace baton::bench
