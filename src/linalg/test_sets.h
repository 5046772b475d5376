// The kernel sets that this CPU can run, as parameters of tests.
#pragma once

#include <string>
#include <vector>

#include "base/cpu.h"
#include "linalg/kernels.h"

namespace baton::linalg {

inline std::vector<KernelSet> runnable_sets() {
  std::vector<KernelSet> sets;
  for (const std::string_view wanted : {"reference", "portable", "avx2", "avx512", "amx"}) {
    if (auto set = choose_kernels(wanted, cpu_features())) sets.push_back(*set);
  }
  return sets;
}

/// For INSTANTIATE_TEST_SUITE_P: names a case by its set. `Info` is
/// testing::TestParamInfo<KernelSet>.
struct SetName {
  template <typename Info>
  std::string operator()(const Info& info) const {
    return std::string(name(info.param));
  }
};

}  // namespace baton::linalg
