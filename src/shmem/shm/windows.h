// The windows of a member as their owner uses them. What the owner decides on (which are open,
// which tags were used) lies in its private memory; the slots in the segment only carry it to the
// writers.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "shmem/heap.h"
#include "shmem/shm/segment.h"

namespace baton::shmem {

/// See Heap for what each does. Thread-safe.
class WindowTable {
 public:
  explicit WindowTable(std::shared_ptr<const Segment> segment);

  [[nodiscard]] Result<Window> open();
  [[nodiscard]] bool signalled(const Window& window) const;
  [[nodiscard]] uint64_t progress(const Window& window) const;
  void close(const Window& window);
  [[nodiscard]] bool quiet(const Window& window) const;
  void free(const Window& window);
  /// The holder of `ticket` is dead: gives the windows up that it was in.
  void evict(uint64_t ticket);

 private:
  /// kQuiet: closed, and the slot was seen without a writer since. Whoever comes after that finds
  /// it closed and backs out, so it stays quiet, though such a guest may show up in the slot for a
  /// moment.
  enum class State { kFree, kOpen, kClosed, kQuiet };
  struct Entry {
    State state = State::kFree;
    uint64_t tag = 0;
  };
  [[nodiscard]] bool in_range(const Window& window) const;
  [[nodiscard]] bool look_if_quiet(int slot) const;

  std::shared_ptr<const Segment> segment_;
  mutable std::mutex mutex_;
  mutable std::vector<Entry> entries_;  ///< [n_windows]
  std::deque<int> free_;  ///< slots in state kFree; the one that is free for longest comes first
  uint64_t last_tag_ = 0;
};

/// The writer's side: put() and signal() hold one of these while they touch the owner's segment.
class WindowEntry {
 public:
  /// kBusy: another member is in it, which has no business there, or has just found it closed.
  enum class Refused { kNo, kClosed, kBusy };
  /// Enters as `ticket` if the window is open under `tag`. Waits a moment for another one to leave.
  WindowEntry(WindowSlot& slot, uint64_t tag, uint64_t ticket);
  ~WindowEntry();
  WindowEntry(const WindowEntry&) = delete;
  WindowEntry& operator=(const WindowEntry&) = delete;

  [[nodiscard]] Refused refused() const { return refused_; }

 private:
  WindowSlot& slot_;
  Refused refused_ = Refused::kNo;
};

}  // namespace baton::shmem
