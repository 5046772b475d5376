// A file mapped for streaming: shared by all processes that map it, and on huge pages.
#pragma once

#include <cstddef>
#include <memory>

namespace baton::linalg {

/// Owns a read-only, shared mapping of a whole file. Immutable, so thread-safe. The file must not
/// be shortened meanwhile (SIGBUS): it is only ever replaced by another of its name.
class HugeMapping {
 public:
  /// nullptr when the system maps the file by small pages (its filesystem's cache has no large
  /// folios: ext4 before Linux 6.16, or pages that came in by small writes): a stream over those
  /// misses the TLB, and reading the file into huge pages of one's own is better.
  [[nodiscard]] static std::shared_ptr<const HugeMapping> open(int fd, size_t n_bytes);
  ~HugeMapping();
  HugeMapping(const HugeMapping&) = delete;
  HugeMapping& operator=(const HugeMapping&) = delete;

  /// Aligned to 2 MiB.
  [[nodiscard]] const std::byte* data() const { return data_; }

 private:
  HugeMapping() = default;

  void* reserved_ = nullptr;
  size_t reserved_bytes_ = 0;
  const std::byte* data_ = nullptr;
};

}  // namespace baton::linalg
