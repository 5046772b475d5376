#include "supervisor/partition.h"

#include "base/check.h"

namespace baton::supervisor {
namespace {

/// `n` things for `n_takers`, as evenly as they go.
std::vector<int> even_counts(int n, int n_takers) {
  std::vector<int> counts(static_cast<size_t>(n_takers), n / n_takers);
  for (int i = 0; i < n % n_takers; ++i) ++counts[static_cast<size_t>(i)];
  return counts;
}

/// The CPUs of each engine out of `units` that stay whole.
std::vector<std::vector<int>> hand_out(const std::vector<std::vector<int>>& units, int n_engines) {
  const auto starts = exclusive_prefix_sums(even_counts(static_cast<int>(units.size()), n_engines));
  std::vector<std::vector<int>> cpus(static_cast<size_t>(n_engines));
  for (size_t engine = 0; engine < cpus.size(); ++engine) {
    for (int unit = starts[engine]; unit < starts[engine + 1]; ++unit) {
      const auto& of_unit = units[static_cast<size_t>(unit)];
      cpus[engine].insert(cpus[engine].end(), of_unit.begin(), of_unit.end());
    }
  }
  return cpus;
}

}  // namespace

std::vector<int> exclusive_prefix_sums(std::span<const int> counts) {
  std::vector<int> sums{0};
  for (const int count : counts) sums.push_back(sums.back() + count);
  return sums;
}

Result<Partition> partition(const PartitionRequest& request) {
  const int n_engines = static_cast<int>(request.n_devices.size());
  std::vector<std::vector<int>> single_cpus;
  for (const auto& core : request.cores) {
    for (const int cpu : core) single_cpus.push_back({cpu});
  }
  const int n_cpus = static_cast<int>(single_cpus.size());
  BATON_CHECK(n_engines > 0 && n_cpus > 0);

  std::vector<std::vector<int>> cpus;
  if (n_engines <= static_cast<int>(request.cores.size())) {
    cpus = hand_out(request.cores, n_engines);
  } else if (n_engines <= n_cpus) {
    cpus = hand_out(single_cpus, n_engines);
  } else if (request.oversubscribe) {
    for (int i = 0; i < n_engines; ++i)
      cpus.push_back(single_cpus[static_cast<size_t>(i % n_cpus)]);
  } else {
    return fail(ErrorCode::kInvalidArgument,
                "--engines: {} engines want a CPU each, and there {} {}; take fewer, or let them "
                "share with --oversubscribe",
                n_engines, n_cpus == 1 ? "is" : "are", n_cpus);
  }

  const auto pe_starts = exclusive_prefix_sums(request.n_devices);
  Partition out;
  out.npes = pe_starts.back();
  for (size_t i = 0; i < cpus.size(); ++i) {
    out.shares.push_back({pe_starts[i], std::move(cpus[i])});
  }
  return out;
}

}  // namespace baton::supervisor
