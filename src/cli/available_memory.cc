#include "cli/available_memory.h"

#include <fstream>
#include <string>

namespace baton::cli {

uint64_t available_bytes() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  while (in >> key >> kib) {
    if (key == "MemAvailable:") return kib << 10;
    in.ignore(100, '\n');
  }
  return 0;
}

}  // namespace baton::cli
