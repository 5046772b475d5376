// The memory of one incarnation of one member: a memfd that every member of the world maps.
//
// File: n_windows window slots of 64 bytes, rounded up to 2 MiB; then the member's PEs,
// bytes_per_pe each, rounded up to 2 MiB each (so that huge pages can back them). Pages exist once
// they are written (or warmed, warmer.h); the size is sealed, so a mapping can't be cut short under
// a reader.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "shmem/shm/fd.h"

namespace baton::shmem {

/// A window as its owner and the one that writes under it share it, in the owner's segment.
///
/// Writer: writer 0 -> its ticket (compare-exchange), then load open_tag; another tag -> back out.
/// Owner: open_tag = 0, then load writer. All of these are sequentially consistent, so at least one
/// of the two sees the other (Dekker): either the writer backs out, or the owner waits until writer
/// is 0 again. For a writer that died in between, the owner does that, when the pidfd says so.
struct alignas(64) WindowSlot {
  std::atomic<uint64_t> open_tag;    ///< the owner's: 0 = closed
  std::atomic<uint64_t> writer;      ///< ticket of the member that is writing; 0 = nobody
  std::atomic<uint64_t> progress;    ///< puts that have ended
  std::atomic<uint64_t> signal_tag;  ///< tag of the last window that was signalled here
};
static_assert(sizeof(WindowSlot) == 64 && std::atomic<uint64_t>::is_always_lock_free);

inline constexpr size_t kHugePageBytes = size_t{2} << 20;
inline constexpr size_t kMaxBytesPerPe = size_t{1} << 42;
inline constexpr int kMaxWindows = 1 << 16;

struct SegmentShape {
  int n_pes = 0;
  size_t bytes_per_pe = 0;
  int n_windows = 0;

  [[nodiscard]] Status check() const;  ///< within the limits, so that nothing below overflows
  [[nodiscard]] size_t pe_offset(int index) const;
  [[nodiscard]] size_t total_bytes() const { return pe_offset(n_pes); }
};

/// A mapped segment. Thread-safe: immutable; what it maps is shared between processes.
class Segment {
 public:
  /// A new one, zeroed, with sealed size. `fd` is what the others map.
  [[nodiscard]] static Result<std::unique_ptr<Segment>> create(const SegmentShape& shape);
  /// Another member's, from a descriptor that it sent: refused unless it is a memfd of just this
  /// shape, sealed.
  [[nodiscard]] static Result<std::unique_ptr<Segment>> map(const Fd& fd,
                                                            const SegmentShape& shape);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  [[nodiscard]] const SegmentShape& shape() const { return shape_; }
  [[nodiscard]] int fd() const { return fd_.get(); }  ///< of create(); a mapped one keeps none
  /// Memory of PE number `index` of the member: [bytes_per_pe].
  [[nodiscard]] std::span<std::byte> memory(int index) const;
  [[nodiscard]] WindowSlot& slot(int index) const;

  /// Makes the pages of 2 MiB number `chunk` exist and maps them here; their contents stay. False:
  /// past the end, or the system can't (before Linux 5.14, or no memory is left).
  [[nodiscard]] bool warm(size_t chunk) const;
  /// True for the first caller only.
  [[nodiscard]] bool claim_warming() const { return !warming_.exchange(true); }

 private:
  Segment(const SegmentShape& shape, std::byte* base) : shape_(shape), base_(base) {}
  [[nodiscard]] static Result<std::unique_ptr<Segment>> map_fd(int fd, const SegmentShape& shape);

  SegmentShape shape_;
  std::byte* base_;
  Fd fd_;
  mutable std::atomic<bool> warming_{false};
};

}  // namespace baton::shmem
