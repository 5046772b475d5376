#include "shmem/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace baton::shmem {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

size_t round_up(size_t n) { return (n + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes; }

/// Maps all of `fd` at an address that is a multiple of the huge page size; nullptr and errno on
/// failure.
std::byte* map_aligned(int fd, size_t n_bytes) {
  const size_t n_reserved = n_bytes + kHugePageBytes;
  void* reserved =
      mmap(nullptr, n_reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(reserved);
  const uintptr_t aligned = round_up(start);
  auto* base = static_cast<std::byte*>(reserved) + (aligned - start);
  void* mapped =
      mmap(base, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
  const int error = errno;
  const size_t n_before = aligned - start;
  if (mapped == MAP_FAILED) {
    munmap(reserved, n_reserved);
    errno = error;
    return nullptr;
  }
  if (n_before > 0) munmap(reserved, n_before);
  if (n_before < kHugePageBytes) munmap(base + n_bytes, kHugePageBytes - n_before);
  return base;
}

}  // namespace

Status SegmentShape::check() const {
  // 2^10 PEs of 2^42 bytes stay below 2^53.
  if (n_pes < 1 || n_pes > 1024 || bytes_per_pe < 1 || bytes_per_pe > kMaxBytesPerPe ||
      n_windows < 1 || n_windows > kMaxWindows) {
    return fail(ErrorCode::kInvalidArgument,
                "a segment of {} PEs with {} bytes each and {} windows: expected 1 to 1024 PEs, 1 "
                "to {} bytes, 1 to {} windows",
                n_pes, bytes_per_pe, n_windows, kMaxBytesPerPe, kMaxWindows);
  }
  return {};
}

size_t SegmentShape::pe_offset(int index) const {
  return round_up(static_cast<size_t>(n_windows) * sizeof(WindowSlot)) +
         static_cast<size_t>(index) * round_up(bytes_per_pe);
}

Result<std::unique_ptr<Segment>> Segment::map_fd(int fd, const SegmentShape& shape) {
  const size_t n_bytes = shape.total_bytes();
  std::byte* base = map_aligned(fd, n_bytes);
  if (!base) {
    return fail(ErrorCode::kIo, "mapping a segment of {} bytes: {}", n_bytes, std::strerror(errno));
  }
  // Neither can fail in a way that matters: without huge pages it is slower, and nobody of ours
  // forks.
  (void)madvise(base, n_bytes, MADV_HUGEPAGE);
  // A child would go on holding (and could write) what its parent's death gives back.
  (void)madvise(base, n_bytes, MADV_DONTFORK);
  return std::unique_ptr<Segment>(new Segment(shape, base));
}

Result<std::unique_ptr<Segment>> Segment::create(const SegmentShape& shape) {
  if (auto status = shape.check(); !status) return tl::unexpected(status.error());
  const size_t n_bytes = shape.total_bytes();
  Fd fd(memfd_create("baton-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ftruncate(fd.get(), static_cast<off_t>(n_bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return fail(ErrorCode::kIo, "making a segment of {} bytes: {}", n_bytes, std::strerror(errno));
  }
  auto segment = map_fd(fd.get(), shape);
  if (segment) (*segment)->fd_ = std::move(fd);
  return segment;
}

Result<std::unique_ptr<Segment>> Segment::map(const Fd& fd, const SegmentShape& shape) {
  if (auto status = shape.check(); !status) return tl::unexpected(status.error());
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return fail(ErrorCode::kCorrupt, "the segment isn't a memfd of sealed size");
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || info.st_size < 0 ||
      static_cast<size_t>(info.st_size) != shape.total_bytes()) {
    return fail(ErrorCode::kCorrupt, "the segment has {} bytes, expected {}", info.st_size,
                shape.total_bytes());
  }
  return map_fd(fd.get(), shape);
}

Segment::~Segment() { munmap(base_, shape_.total_bytes()); }

std::span<std::byte> Segment::memory(int index) const {
  BATON_CHECK(index >= 0 && index < shape_.n_pes, "PE number {}", index);
  return {base_ + shape_.pe_offset(index), shape_.bytes_per_pe};
}

bool Segment::warm(size_t chunk) const {
#ifdef MADV_POPULATE_WRITE
  const size_t begin = chunk * kHugePageBytes;
  if (begin >= shape_.total_bytes()) return false;
  const size_t n = std::min(kHugePageBytes, shape_.total_bytes() - begin);
  return madvise(base_ + begin, n, MADV_POPULATE_WRITE) == 0;
#else
  (void)chunk;
  return false;
#endif
}

WindowSlot& Segment::slot(int index) const {
  BATON_CHECK(index >= 0 && index < shape_.n_windows, "window {}", index);
  return reinterpret_cast<WindowSlot*>(base_)[index];
}

}  // namespace baton::shmem
