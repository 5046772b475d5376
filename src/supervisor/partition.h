// Who gets what of a host: processing elements (PEs) and CPUs, handed out to engines by exclusive
// prefix sums over their counts, so that no two engines overlap. Pure.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"

namespace baton::supervisor {

/// What one engine is given.
struct Share {
  int pe_start = 0;       ///< its devices are the PEs [pe_start, pe_start + its count)
  std::vector<int> cpus;  ///< at least one
};

struct Partition {
  int npes = 0;               ///< of the world: the total of all counts
  std::vector<Share> shares;  ///< [n_engines]
};

/// [counts.size() + 1]: out[i] = counts[0] + … + counts[i - 1]; the last one is the total.
[[nodiscard]] std::vector<int> exclusive_prefix_sums(std::span<const int> counts);

struct PartitionRequest {
  std::vector<int> n_devices;           ///< [n_engines], each >= 1
  std::vector<std::vector<int>> cores;  ///< the CPUs to hand out, those of one core together
  bool oversubscribe = false;           ///< more engines than CPUs may share them, round robin
};

/// Whole cores, as evenly as they go (the first engines get the odd ones); where there are fewer
/// cores than engines, single CPUs. kInvalidArgument, naming --engines and both numbers: more
/// engines than CPUs, without `oversubscribe`.
[[nodiscard]] Result<Partition> partition(const PartitionRequest& request);

}  // namespace baton::supervisor
