#include "testing/faulty_heap.h"

#include <gtest/gtest.h>

#include "testing/fake_world.h"

namespace baton::testing {
namespace {

using shmem::Heap;
using shmem::Piece;
using shmem::Target;
using shmem::Window;
using Kind = HeapFault::Kind;

class FaultyHeapTest : public ::testing::Test {
 protected:
  FaultyHeapTest() {
    inner_ = world_.join({.first_pe = {0}, .bytes_per_pe = 64});
    owner_ = world_.join({.first_pe = {1}, .bytes_per_pe = 64});
    window_ = owner_->open_window().value();
    heap_.emplace(*inner_, nullptr, [this] { world_.kill({0}); });
  }
  Target target() const { return {{1}, owner_->incarnation(), window_}; }
  Status put(int value, size_t offset = 0) {
    std::vector<std::byte> bytes(16, static_cast<std::byte>(value));
    const Piece piece{offset, bytes};
    return heap_->put(target(), {&piece, 1});  // and the bytes are gone
  }
  int at(size_t i) const { return static_cast<int>(owner_->local({1})[i]); }
  void always(HeapFault fault) {
    heap_->set_script([fault](const HeapOperation&) { return fault; });
  }

  FakeWorld world_{2};
  std::unique_ptr<Heap> inner_;
  std::unique_ptr<Heap> owner_;
  Window window_;
  std::optional<FaultyHeap> heap_;
};

TEST_F(FaultyHeapTest, passes_everything_on_without_a_script) {
  ASSERT_TRUE(put(1));
  EXPECT_EQ(at(0), 1);
  ASSERT_TRUE(heap_->signal(target()));
  EXPECT_TRUE(owner_->signalled(window_));
  EXPECT_EQ(heap_->peer({1})->incarnation, owner_->incarnation());
  EXPECT_EQ(heap_->local({0}).data(), inner_->local({0}).data());
}

TEST_F(FaultyHeapTest, fails_and_drops_by_script) {
  heap_->set_script([](const HeapOperation& operation) {
    EXPECT_EQ(operation.n_bytes, 16U);
    return HeapFault{.kind = operation.number == 0 ? Kind::kFail : Kind::kDrop};
  });
  EXPECT_EQ(put(1).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(put(2));
  EXPECT_EQ(at(0), 0);
  EXPECT_EQ(heap_->n_waiting(), 0);
}

TEST_F(FaultyHeapTest, a_held_put_keeps_its_signal_back) {
  always({.kind = Kind::kHold});
  ASSERT_TRUE(put(5));
  always({});
  ASSERT_TRUE(heap_->signal(target()));
  EXPECT_FALSE(owner_->signalled(window_));
  EXPECT_EQ(heap_->n_waiting(), 2);
  EXPECT_EQ(at(0), 0);
  ASSERT_TRUE(heap_->release(0));
  EXPECT_EQ(at(0), 5);
  // The signal had no fault of its own: it follows by itself.
  while (heap_->n_waiting() > 0) std::this_thread::yield();
  EXPECT_TRUE(owner_->signalled(window_));
}

TEST_F(FaultyHeapTest, a_signal_may_be_told_to_overtake) {
  always({.kind = Kind::kHold});
  ASSERT_TRUE(put(5));
  always({.overtake = true});
  ASSERT_TRUE(heap_->signal(target()));
  EXPECT_TRUE(owner_->signalled(window_));
  EXPECT_EQ(at(0), 0);
}

TEST_F(FaultyHeapTest, reorders) {
  always({.kind = Kind::kHold});
  ASSERT_TRUE(put(1));
  ASSERT_TRUE(put(2));
  ASSERT_TRUE(put(3));
  EXPECT_EQ(heap_->release_all_reversed(), 0);
  EXPECT_EQ(at(0), 1);
  ASSERT_TRUE(put(1));
  ASSERT_TRUE(put(2));
  ASSERT_TRUE(put(3));
  EXPECT_EQ(heap_->release_all(), 0);
  EXPECT_EQ(at(0), 3);
  EXPECT_EQ(heap_->n_waiting(), 0);
}

TEST_F(FaultyHeapTest, a_late_put_is_refused_when_its_window_is_closed) {
  always({.kind = Kind::kHold});
  ASSERT_TRUE(put(1));
  owner_->close_window(window_);
  owner_->free_window(window_);
  const Window next = owner_->open_window().value();
  EXPECT_EQ(next.slot, window_.slot);
  EXPECT_EQ(heap_->release_all(), 1);
  EXPECT_EQ(at(0), 0);
}

TEST_F(FaultyHeapTest, delays_come_in_order_on_a_thread) {
  int delay_ms = 30;
  heap_->set_script([&](const HeapOperation&) {
    // Each shorter than the one before: only the order keeps them back.
    return HeapFault{.kind = Kind::kDelay, .delay = std::chrono::milliseconds(delay_ms -= 10)};
  });
  ASSERT_TRUE(put(1));
  ASSERT_TRUE(put(2));
  ASSERT_TRUE(heap_->signal(target()));
  while (heap_->n_waiting() > 0) std::this_thread::yield();
  EXPECT_EQ(at(0), 2);
  EXPECT_TRUE(owner_->signalled(window_));
}

TEST_F(FaultyHeapTest, kills) {
  always({.kind = Kind::kKill});
  EXPECT_FALSE(put(1));
  EXPECT_FALSE(owner_->peer({0}));
  always({});
  EXPECT_FALSE(put(1));
  EXPECT_EQ(at(0), 0);
}

TEST_F(FaultyHeapTest, what_waits_at_the_end_is_never_done) {
  always({.kind = Kind::kDelay, .delay = std::chrono::hours(1)});
  ASSERT_TRUE(put(1));
  heap_.reset();
  EXPECT_EQ(at(0), 0);
}

}  // namespace
}  // namespace baton::testing
