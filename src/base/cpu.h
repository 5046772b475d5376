// What the CPU is and can do, which CPUs this process may use, and pinning.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace baton {

/// Instruction sets that our kernels ask about, as the CPU and the operating system allow them.
struct CpuFeatures {
  bool avx2 = false;    ///< with fma and f16c
  bool avx512 = false;  ///< f, bw, dq, vl, cd
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool amx_bf16 = false;  ///< with tile and int8, and granted by the kernel to this process
};

/// Detected once. Thread-safe.
[[nodiscard]] const CpuFeatures& cpu_features();
/// "avx2 avx512 avx512_vnni …" for /version and logs.
[[nodiscard]] std::string describe(const CpuFeatures& features);

/// The CPUs this process may run on, one for each physical core first (hwloc), then their siblings.
[[nodiscard]] std::vector<int> allowed_cpus();
/// The same CPUs by physical core: those of one core together, [n_cores][>= 1].
[[nodiscard]] std::vector<std::vector<int>> allowed_cores();
/// Parses "0-3,8" into a sorted list of distinct CPU numbers.
[[nodiscard]] Result<std::vector<int>> parse_cpu_list(std::string_view text);
/// Pins the calling thread; false if the CPU is not ours to use (the thread then stays unpinned).
bool pin_this_thread(int cpu);

}  // namespace baton
