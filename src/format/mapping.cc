#include "format/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace baton::format {
namespace {

/// Closes a descriptor when it goes.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

Result<Mapping> Mapping::open(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) {
    const ErrorCode code =
        errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
    return fail(code, "{}: can't open: {}", path, std::strerror(errno));
  }
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) {
    return fail(ErrorCode::kIo, "{}: can't stat: {}", path, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kUnsupported, "{}: not a regular file", path);
  }
  if (status.st_size <= 0) return fail(ErrorCode::kInvalidArgument, "{}: the file is empty", path);

  Mapping mapping;
  mapping.size_ = static_cast<size_t>(status.st_size);
  void* data = ::mmap(nullptr, mapping.size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::kIo, "{}: can't map {} bytes: {}", path, mapping.size_,
                std::strerror(errno));
  }
  mapping.data_ = static_cast<const std::byte*>(data);
  mapping.stamp_ =
      fmt::format("{} bytes, {}.{:09} {}.{:09}", mapping.size_, status.st_mtim.tv_sec,
                  status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
  return mapping;
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      stamp_(std::move(other.stamp_)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(stamp_, other.stamp_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void Mapping::release_pages() const {
  // Advice only: failure costs memory, nothing else.
  if (data_ != nullptr) (void)::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

}  // namespace baton::format
