#include "shmem/shm/windows.h"

#include <sched.h>

#include "base/check.h"

namespace baton::shmem {

WindowTable::WindowTable(std::shared_ptr<const Segment> segment) : segment_(std::move(segment)) {
  const int n = segment_->shape().n_windows;
  entries_.resize(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) free_.push_back(i);
}

bool WindowTable::in_range(const Window& window) const {
  return window.tag != 0 && window.slot >= 0 && window.slot < segment_->shape().n_windows;
}

Result<Window> WindowTable::open() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    return tl::unexpected(
        Error{ErrorCode::kExhausted,
              fmt::format("all {} windows of the heap are in use", entries_.size()), true});
  }
  const int index = free_.front();
  free_.pop_front();
  entries_[static_cast<size_t>(index)] = {State::kOpen, ++last_tag_};
  segment_->slot(index).open_tag.store(last_tag_);
  return Window{index, last_tag_};
}

bool WindowTable::signalled(const Window& window) const {
  // Acquire: pairs with signal()'s release, so all bytes put before it are seen.
  return in_range(window) &&
         segment_->slot(window.slot).signal_tag.load(std::memory_order_acquire) == window.tag;
}

uint64_t WindowTable::progress(const Window& window) const {
  return in_range(window) ? segment_->slot(window.slot).progress.load(std::memory_order_relaxed)
                          : 0;
}

void WindowTable::close(const Window& window) {
  if (!in_range(window)) return;
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[static_cast<size_t>(window.slot)];
  if (entry.tag != window.tag || entry.state != State::kOpen) return;
  entry.state = State::kClosed;
  segment_->slot(window.slot).open_tag.store(0);  // seq_cst: see WindowSlot
}

bool WindowTable::look_if_quiet(int slot) const {
  Entry& entry = entries_[static_cast<size_t>(slot)];
  if (entry.state == State::kClosed && segment_->slot(slot).writer.load() == 0) {
    entry.state = State::kQuiet;  // the load is seq_cst: see WindowSlot
  }
  return entry.state == State::kQuiet;
}

bool WindowTable::quiet(const Window& window) const {
  if (!in_range(window)) return true;
  const std::lock_guard lock(mutex_);
  const Entry& entry = entries_[static_cast<size_t>(window.slot)];
  return entry.tag != window.tag || entry.state == State::kFree || look_if_quiet(window.slot);
}

void WindowTable::free(const Window& window) {
  if (!in_range(window)) return;
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[static_cast<size_t>(window.slot)];
  if (entry.tag != window.tag || entry.state == State::kFree) return;
  BATON_CHECK(look_if_quiet(window.slot), "window {} isn't quiet", window.slot);
  entry.state = State::kFree;
  free_.push_back(window.slot);
}

void WindowTable::evict(uint64_t ticket) {
  for (int i = 0; i < segment_->shape().n_windows; ++i) {
    uint64_t writer = ticket;
    segment_->slot(i).writer.compare_exchange_strong(writer, 0);
  }
}

WindowEntry::WindowEntry(WindowSlot& slot, uint64_t tag, uint64_t ticket) : slot_(slot) {
  constexpr int kMaxTries = 50;
  uint64_t nobody = 0;
  for (int i = 0; !slot.writer.compare_exchange_strong(nobody, ticket); ++i) {
    if (i == kMaxTries) {
      refused_ = Refused::kBusy;
      return;
    }
    nobody = 0;
    sched_yield();
  }
  if (tag == 0 || slot.open_tag.load() != tag) {
    slot.writer.store(0, std::memory_order_release);
    refused_ = Refused::kClosed;
  }
}

WindowEntry::~WindowEntry() {
  if (refused_ == Refused::kNo) slot_.writer.store(0, std::memory_order_release);
}

}  // namespace baton::shmem
