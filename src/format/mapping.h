// A file mapped read-only. Bottom of the format layer.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace baton::format {

/// A read-only, private mapping of a whole file; unmapped when it goes. Movable, not copyable; a
/// moved mapping keeps its address. Immutable, so thread-safe. The file must not be shortened while
/// it is mapped (the kernel answers a read past the new end with SIGBUS): replace model files by
/// rename, as every download tool does.
class Mapping {
 public:
  /// kNotFound when there is no such file, kInvalidArgument when it is empty or not a regular file,
  /// kIo else.
  [[nodiscard]] static Result<Mapping> open(const std::string& path);

  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Size and times of the file's last change of content and of status (the latter can't be set,
  /// and changes with every write): another text when the file is not what it was.
  [[nodiscard]] const std::string& stamp() const { return stamp_; }
  /// Tells the kernel that the pages will not be needed soon (weights have been packed).
  void release_pages() const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string stamp_;
};

}  // namespace baton::format
