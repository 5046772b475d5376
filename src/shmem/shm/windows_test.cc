#include "shmem/shm/windows.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace baton::shmem {
namespace {

/// The race at the heart of it, with nothing around: an owner opens, closes and waits; a writer
/// enters and leaves. Once the owner has seen a window quiet, the writer must not be inside under
/// its tag.
TEST(ShmWindows, nobody_is_inside_once_it_is_quiet) {
  const std::shared_ptr<const Segment> segment =
      Segment::create({.n_pes = 1, .bytes_per_pe = 1, .n_windows = 1}).value();
  WindowTable table(segment);
  std::atomic<uint64_t> open_tag = 0;   ///< what the writer is told
  std::atomic<uint64_t> quiet_tag = 0;  ///< the last one that was seen quiet
  std::atomic<bool> stop = false;
  std::atomic<int64_t> n_inside = 0, n_late = 0;
  std::thread writer([&] {
    while (!stop) {
      const uint64_t tag = open_tag;
      const WindowEntry entry(segment->slot(0), tag, 1);
      if (entry.refused() != WindowEntry::Refused::kNo) continue;
      // Long enough for an owner that doesn't see it to go on.
      for (int i = 0; i < 20; ++i) n_late += quiet_tag >= tag;
      ++n_inside;
    }
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  while (n_inside < 1000 || std::chrono::steady_clock::now() < end) {
    const Window window = table.open().value();
    open_tag = window.tag;
    for (uint64_t i = window.tag % 64; i > 0; --i) (void)table.signalled(window);
    table.close(window);
    while (!table.quiet(window)) std::this_thread::yield();
    quiet_tag = window.tag;
    table.free(window);
  }
  stop = true;
  writer.join();
  EXPECT_EQ(n_late, 0) << "of " << n_inside;
}

}  // namespace
}  // namespace baton::shmem
