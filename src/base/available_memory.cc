#include "base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace baton {
namespace {

uint64_t of_machine() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  while (in >> key >> kib) {
    if (key == "MemAvailable:") return kib << 10;
    in.ignore(100, '\n');
  }
  return 0;
}

/// A container sees its own group at the root of the hierarchy. "max" (no limit) is no number.
std::optional<uint64_t> number_in(const char* path) {
  std::ifstream in(path);
  uint64_t number = 0;
  if (!(in >> number)) return std::nullopt;
  return number;
}

}  // namespace

uint64_t available_bytes() {
  const uint64_t machine = of_machine();
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (!limit || !used) return machine;
  const uint64_t left = *limit > *used ? *limit - *used : 1;
  return machine == 0 ? left : std::min(machine, left);
}

}  // namespace baton
