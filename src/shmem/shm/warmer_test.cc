#include "shmem/shm/warmer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>

namespace baton::shmem {
namespace {

constexpr SegmentShape kShape{.n_pes = 2, .bytes_per_pe = size_t{9} << 20, .n_windows = 4};

std::shared_ptr<Segment> make_segment() {
  auto segment = Segment::create(kShape);
  EXPECT_TRUE(segment) << segment.error().message;
  return std::move(*segment);
}

/// Of those that exist.
size_t n_page_bytes(const Segment& segment) {
  struct stat info {};
  EXPECT_EQ(fstat(segment.fd(), &info), 0);
  return static_cast<size_t>(info.st_blocks) * 512;
}

bool wait_until_warm(const Segment& segment) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (n_page_bytes(segment) < kShape.total_bytes()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST(Warmer, PagesExistAndKeepWhatIsInThem) {
  const auto first = make_segment();
  const auto second = make_segment();
  std::memset(first->memory(1).data(), 7, 100);
  if (!first->warm(0)) GTEST_SKIP() << "skipped: this Linux has no MADV_POPULATE_WRITE";
  EXPECT_LT(n_page_bytes(*first), kShape.total_bytes());
  Warmer warmer;
  warmer.add(first);
  warmer.add(second);
  EXPECT_TRUE(wait_until_warm(*first));
  EXPECT_TRUE(wait_until_warm(*second));
  EXPECT_EQ(first->memory(1)[99], std::byte{7});
  EXPECT_EQ(first->memory(1)[100], std::byte{0});
  EXPECT_FALSE(first->warm(kShape.total_bytes() / kHugePageBytes)) << "past the end";
  EXPECT_FALSE(first->claim_warming());
}

TEST(Warmer, LetsGoOfSegmentsAndStopsInTheMiddle) {
  for (int i = 0; i < 20; ++i) {
    auto gone = make_segment();
    const std::weak_ptr<Segment> watch = gone;
    Warmer warmer;
    warmer.add(gone);
    gone.reset();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!watch.expired() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    EXPECT_TRUE(watch.expired());
    const auto kept = make_segment();
    warmer.add(kept);  // and the warmer goes first
  }
}

}  // namespace
}  // namespace baton::shmem
