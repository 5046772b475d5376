#include "base/cpu.h"

#include <hwloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace baton {
namespace {

#if defined(__x86_64__)
bool amx_granted() {
  // Linux hands out AMX tile state on request: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}
#endif

CpuFeatures detect() {
  CpuFeatures f;
#if defined(__x86_64__)
  __builtin_cpu_init();
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kF16c = 1U << 29;  // CPUID.1.ECX; g++ 12 has no name for it
  f.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kF16c) != 0;
  f.avx512 = f.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512cd");
  f.avx512_vnni = f.avx512 && __builtin_cpu_supports("avx512vnni");
  f.avx512_bf16 = f.avx512 && __builtin_cpu_supports("avx512bf16");
  if (f.avx512_bf16 && __get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    // CPUID.7.0.EDX: bit 22 AMX-BF16, 24 AMX-TILE, 25 AMX-INT8.
    constexpr unsigned kAmx = (1U << 22) | (1U << 24) | (1U << 25);
    f.amx_bf16 = (d & kAmx) == kAmx && amx_granted();
  }
#endif
  return f;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::string describe(const CpuFeatures& f) {
  std::string text;
  const auto add = [&](bool has, const char* name) {
    if (has) text += (text.empty() ? "" : " ") + std::string(name);
  };
  add(f.avx2, "avx2");
  add(f.avx512, "avx512");
  add(f.avx512_vnni, "avx512_vnni");
  add(f.avx512_bf16, "avx512_bf16");
  add(f.amx_bf16, "amx_bf16");
  return text.empty() ? "none" : text;
}

std::vector<std::vector<int>> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<std::vector<int>> cores;
  hwloc_topology_t topology = nullptr;
  hwloc_topology_init(&topology);
  if (hwloc_topology_load(topology) == 0) {
    const int n_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    for (int i = 0; i < n_cores; ++i) {
      hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
      std::vector<int> cpus;
      int cpu = -1;
      while ((cpu = hwloc_bitmap_next(core->cpuset, cpu)) != -1) {
        if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
      }
      if (!cpus.empty()) cores.push_back(std::move(cpus));
    }
  }
  hwloc_topology_destroy(topology);
  if (cores.empty()) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cores.push_back({cpu});
    }
  }
  return cores;
}

std::vector<int> allowed_cpus() {
  std::vector<int> first;
  std::vector<int> siblings;
  for (const auto& core : allowed_cores()) {
    first.push_back(core.front());
    siblings.insert(siblings.end(), core.begin() + 1, core.end());
  }
  first.insert(first.end(), siblings.begin(), siblings.end());
  return first;
}

Result<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  const auto bad = [&] {
    return fail(ErrorCode::kInvalidArgument, "CPU list '{}': use numbers and ranges as in 0-3,8",
                text);
  };
  size_t at = 0;
  while (at <= text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view part = text.substr(at, comma - at);
    int low = 0;
    const char* end = part.data() + part.size();
    auto [next, ec] = std::from_chars(part.data(), end, low);
    if (ec != std::errc() || low < 0) return bad();
    int high = low;
    if (next != end) {
      if (*next != '-') return bad();
      auto [last, ec2] = std::from_chars(next + 1, end, high);
      if (ec2 != std::errc() || last != end) return bad();
    }
    if (high < low || high >= CPU_SETSIZE) return bad();
    for (int cpu = low; cpu <= high; ++cpu) cpus.push_back(cpu);
    at = comma + 1;
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

bool pin_this_thread(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0;
}

}  // namespace baton
