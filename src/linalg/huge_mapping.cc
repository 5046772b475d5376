#include "linalg/huge_mapping.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace baton::linalg {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

/// Bytes of the mapping at `begin` that huge pages map (proc(5): smaps).
size_t huge_bytes(const void* begin) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string first = fmt::format("{:x}-", reinterpret_cast<uintptr_t>(begin));
  constexpr std::string_view kField = "FilePmdMapped:";
  bool found = false;
  for (std::string line; std::getline(smaps, line);) {
    if (!found) {
      found = line.starts_with(first);
    } else if (line.starts_with(kField)) {
      return std::strtoull(line.c_str() + kField.size(), nullptr, 10) << 10;
    }
  }
  return 0;
}

}  // namespace

std::shared_ptr<const HugeMapping> HugeMapping::open(int fd, size_t n_bytes) {
  const size_t n_huge = n_bytes / kHugePage;
  if (n_huge == 0) return nullptr;
  std::shared_ptr<HugeMapping> out(new HugeMapping());
  const size_t reserved_bytes = n_bytes + kHugePage;
  void* reserved = ::mmap(nullptr, reserved_bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  out->reserved_ = reserved;
  out->reserved_bytes_ = reserved_bytes;
  const auto address = reinterpret_cast<uintptr_t>(reserved);
  auto* data = static_cast<std::byte*>(reserved) + (kHugePage - address % kHugePage) % kHugePage;
  if (::mmap(data, n_bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) return nullptr;
  out->data_ = data;
  // Pages that aren't in memory are then read as huge ones.
  (void)::madvise(data, n_bytes, MADV_HUGEPAGE);
  for (size_t i = 0; i < n_huge; ++i) {
    (void)*static_cast<volatile const std::byte*>(data + i * kHugePage);
  }
  return huge_bytes(data) / kHugePage >= n_huge - n_huge / 16 ? out : nullptr;
}

HugeMapping::~HugeMapping() {
  if (reserved_ != nullptr) ::munmap(reserved_, reserved_bytes_);
}

}  // namespace baton::linalg
