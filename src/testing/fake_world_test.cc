#include "testing/fake_world.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace baton::testing {
namespace {

using shmem::Heap;
using shmem::Piece;
using shmem::Target;
using shmem::Window;

class FakeWorldTest : public ::testing::Test {
 protected:
  FakeWorldTest() {
    sender_ = world_.join({.first_pe = {0}, .n_pes = 2, .bytes_per_pe = 64});
    owner_ = world_.join({.first_pe = {2}, .bytes_per_pe = 64});
  }
  Target target(const Window& window) const { return {{2}, owner_->incarnation(), window}; }
  Status put(const Target& to, int value, size_t offset = 0) {
    const std::vector<std::byte> bytes(16, static_cast<std::byte>(value));
    const Piece piece{offset, bytes};
    return sender_->put(to, {&piece, 1});
  }
  int at(size_t i) const { return static_cast<int>(owner_->local({2})[i]); }

  FakeWorld world_{3};
  std::unique_ptr<Heap> sender_;
  std::unique_ptr<Heap> owner_;
};

TEST_F(FakeWorldTest, puts_and_signals) {
  int n_calls = 0;
  owner_->set_listener([&] { ++n_calls; });
  const Window window = owner_->open_window().value();
  ASSERT_TRUE(put(target(window), 7, 48));
  EXPECT_EQ(at(47), 0);
  EXPECT_EQ(at(48), 7);
  EXPECT_EQ(owner_->progress(window), 1U);
  EXPECT_FALSE(owner_->signalled(window));
  ASSERT_TRUE(sender_->signal(target(window)));
  EXPECT_TRUE(owner_->signalled(window));
  EXPECT_EQ(n_calls, 1);
  EXPECT_EQ(put(target(window), 7, 49).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(FakeWorldTest, a_closed_window_and_a_wrong_incarnation_refuse) {
  const Window window = owner_->open_window().value();
  Target old = target(window);
  ++old.incarnation;
  EXPECT_EQ(put(old, 1).error().code, ErrorCode::kUnavailable);
  owner_->close_window(window);
  EXPECT_TRUE(owner_->quiet(window));
  EXPECT_EQ(put(target(window), 1).error().code, ErrorCode::kUnavailable);
  owner_->free_window(window);
  const Window next = owner_->open_window().value();
  EXPECT_EQ(next.slot, window.slot);
  EXPECT_NE(next.tag, window.tag);
  EXPECT_FALSE(put(target(window), 1));
  EXPECT_EQ(at(0), 0);
}

TEST_F(FakeWorldTest, a_held_put_writes_late) {
  const Window window = owner_->open_window().value();
  world_.hold_next_put({2});
  ASSERT_TRUE(put(target(window), 5));
  owner_->close_window(window);
  EXPECT_FALSE(owner_->quiet(window));
  EXPECT_EQ(at(7), 5);
  EXPECT_EQ(at(8), 0);
  EXPECT_EQ(world_.finish_puts(), 1);
  EXPECT_EQ(at(8), 5);
  EXPECT_TRUE(owner_->quiet(window));
}

TEST_F(FakeWorldTest, death_ends_a_held_put) {
  const Window window = owner_->open_window().value();
  world_.hold_next_put({2});
  ASSERT_TRUE(put(target(window), 5));
  owner_->close_window(window);
  int n_calls = 0;
  owner_->set_listener([&] { ++n_calls; });
  world_.kill({1});
  EXPECT_EQ(n_calls, 1);
  EXPECT_TRUE(owner_->quiet(window));
  EXPECT_EQ(world_.finish_puts(), 0);
  EXPECT_EQ(at(8), 0);
  EXPECT_FALSE(owner_->peer({0}));
  EXPECT_EQ(put(target(window), 5).error().code, ErrorCode::kUnavailable);
  const auto next = world_.join({.first_pe = {0}, .n_pes = 2, .bytes_per_pe = 64});
  EXPECT_NE(next->incarnation(), sender_->incarnation());
  EXPECT_EQ(owner_->peer({1})->incarnation, next->incarnation());
}

}  // namespace
}  // namespace baton::testing
