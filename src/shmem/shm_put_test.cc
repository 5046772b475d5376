// Puts, signals and windows within this process; puts are held in the middle by an injected copy.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <new>
#include <numeric>
#include <random>
#include <thread>

#include "base/log.h"
#include "shmem/shm/copy.h"
#include "shmem/shm_test_support.h"

namespace baton::shmem {
namespace {

/// A copy function that stops after half of the bytes until it is let go.
class Gate {
 public:
  void copy(std::byte* to, std::span<const std::byte> from) {
    if (from.empty()) return;
    const size_t half = from.size() / 2;
    std::memcpy(to, from.data(), half);
    std::unique_lock lock(mutex_);
    if (shut_) {
      ++n_held_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !shut_; });
    }
    lock.unlock();
    std::memcpy(to + half, from.data() + half, from.size() - half);
  }
  void shut() {
    const std::lock_guard lock(mutex_);
    shut_ = true;
    n_held_ = 0;
  }
  void wait_for_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return n_held_ > 0; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    shut_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool shut_ = false;
  int n_held_ = 0;
};

class ShmPut : public testing::Test {
 protected:
  ShmPut() {
    auto sender = member_of(uid_, 2, 0);
    sender.copy = [this](std::byte* to, std::span<const std::byte> from) { gate_.copy(to, from); };
    auto heaps = join_all_or_die({sender, member_of(uid_, 2, 1)});
    sender_ = std::move(heaps[0]);
    owner_ = std::move(heaps[1]);
  }
  Target target(const Window& window) const { return target_at(*owner_, 1, window); }
  int at(size_t i) const { return static_cast<int>(owner_->local({1})[i]); }
  Status put(const Window& window, int value, size_t n = 64, size_t offset = 0) {
    return put_bytes(*sender_, target(window), value, n, offset);
  }

  Gate gate_;
  const std::string uid_ = new_uid();
  std::unique_ptr<Heap> sender_;
  std::unique_ptr<Heap> owner_;
};

TEST_F(ShmPut, several_pieces_go_to_their_places) {
  const Window window = owner_->open_window().value();
  std::vector<std::byte> a(100, std::byte{1}), b(1000, std::byte{2});
  const std::vector<Piece> pieces{{5, a}, {65536 - 1000, b}, {300, {}}};
  const uint64_t before = owner_->progress(window);
  ASSERT_TRUE(sender_->put(target(window), pieces));
  EXPECT_GT(owner_->progress(window), before);
  EXPECT_EQ(at(4), 0);
  EXPECT_EQ(at(5), 1);
  EXPECT_EQ(at(104), 1);
  EXPECT_EQ(at(105), 0);
  EXPECT_EQ(at(65536 - 1001), 0);
  EXPECT_EQ(at(65536 - 1000), 2);
  EXPECT_EQ(at(65535), 2);
}

TEST_F(ShmPut, outside_of_the_memory_nothing_is_written) {
  const Window window = owner_->open_window().value();
  const std::vector<std::byte> bytes(64, std::byte{9});
  for (const uint64_t offset :
       {uint64_t{65536 - 63}, uint64_t{65537}, UINT64_MAX, UINT64_MAX - 63}) {
    const std::vector<Piece> pieces{{0, bytes}, {offset, bytes}};
    const auto status = sender_->put(target(window), pieces);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(at(0), 0) << "the first piece of a refused put";
  Target none = target(window);
  none.window.slot = 16;
  EXPECT_EQ(put_bytes(*sender_, none, 1, 1).error().code, ErrorCode::kInvalidArgument);
  none.window.slot = -1;
  EXPECT_EQ(sender_->signal(none).error().code, ErrorCode::kInvalidArgument);
  none.pe = {5};
  EXPECT_EQ(put_bytes(*sender_, none, 1, 1).error().code, ErrorCode::kUnavailable);
}

TEST_F(ShmPut, a_signal_rings_the_listener) {
  std::atomic<int> n_calls = 0;
  owner_->set_listener([&] { ++n_calls; });
  ASSERT_TRUE(eventually([&] { return n_calls == 1; })) << "once after it is set";
  const Window window = owner_->open_window().value();
  EXPECT_FALSE(owner_->signalled(window));
  ASSERT_TRUE(put(window, 1));
  EXPECT_FALSE(owner_->signalled(window));
  ASSERT_TRUE(sender_->signal(target(window)));
  EXPECT_TRUE(owner_->signalled(window));
  EXPECT_TRUE(eventually([&] { return n_calls == 2; }));
  sender_.reset();
  EXPECT_TRUE(eventually([&] { return n_calls == 3; })) << "when a member leaves";
  owner_->set_listener({});
}

// Row 16: a service thread dies of one exception and all later messages stall.
TEST(ShmPutDeathTest, Row16_an_exception_in_the_heaps_thread_ends_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto heap = std::move(join_all_or_die({member_of(new_uid(), 1, 0)})[0]);
        (void)init_logging("error", "text");
        heap->set_listener([] { throw std::bad_alloc(); });
        ::pause();
      },
      "thread 'baton-heap' has ended by an exception.*bad_alloc");
}

TEST_F(ShmPut, a_closed_window_takes_nothing) {
  const Window window = owner_->open_window().value();
  EXPECT_FALSE(owner_->quiet(window)) << "open is not quiet";
  owner_->close_window(window);
  EXPECT_TRUE(owner_->quiet(window));
  EXPECT_EQ(put(window, 1).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(put({window.slot, 0}, 1).error().code, ErrorCode::kUnavailable) << "no tag at all";
  EXPECT_EQ(sender_->signal(target(window)).error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(owner_->signalled(window));
  EXPECT_EQ(at(0), 0);
}

TEST_F(ShmPut, a_put_under_way_keeps_a_closed_window_from_being_quiet) {
  const Window window = owner_->open_window().value();
  gate_.shut();
  std::thread writer([&] { EXPECT_TRUE(put(window, 7)); });
  gate_.wait_for_one();
  EXPECT_EQ(at(0), 7);
  EXPECT_EQ(at(63), 0);
  owner_->close_window(window);
  EXPECT_FALSE(owner_->quiet(window));
  gate_.open();
  writer.join();
  EXPECT_TRUE(owner_->quiet(window));
  EXPECT_EQ(at(63), 7);
  EXPECT_FALSE(put(window, 8));
  EXPECT_EQ(at(0), 7);
}

// Row 38: transfer collapses under concurrency. No put, signal or window waits for another put.
TEST(ShmPutAtOnce, Row38_a_put_in_the_middle_holds_up_no_other) {
  constexpr int kSlow = 99;
  const std::string uid = new_uid();
  auto options = member_of(uid, 2, 0);
  std::promise<void> caught, go_on;
  options.copy = [&](std::byte* to, std::span<const std::byte> from) {
    if (from.front() == std::byte{kSlow}) {
      caught.set_value();
      go_on.get_future().wait();
    }
    std::memcpy(to, from.data(), from.size());
  };
  const auto heaps = join_all_or_die({options, member_of(uid, 2, 1)});
  Heap& sender = *heaps[0];
  Heap& owner = *heaps[1];
  const auto put_into = [&](const Window& window, int value, size_t place) {
    return put_bytes(sender, target_at(owner, 1, window), value, 64, place * 64);
  };
  const Window slow = owner.open_window().value();
  std::thread slow_writer([&] { EXPECT_TRUE(put_into(slow, kSlow, 0)); });
  caught.get_future().wait();
  std::vector<std::thread> writers;
  for (size_t place = 1; place <= 8; ++place) {
    writers.emplace_back([&, place] {
      for (int i = 0; i < 50; ++i) {
        const Window window = owner.open_window().value();
        EXPECT_TRUE(put_into(window, static_cast<int>(place), place));
        EXPECT_TRUE(sender.signal(target_at(owner, 1, window)));
        EXPECT_TRUE(owner.signalled(window));
        owner.close_window(window);
        EXPECT_TRUE(owner.quiet(window));
        owner.free_window(window);
      }
    });
  }
  for (auto& writer : writers) writer.join();
  for (size_t place = 1; place <= 8; ++place) {
    EXPECT_EQ(static_cast<size_t>(owner.local({1})[place * 64 + 63]), place);
  }
  EXPECT_EQ(owner.progress(slow), 0U) << "the slow one is still under way";
  go_on.set_value();
  slow_writer.join();
  EXPECT_EQ(owner.local({1})[0], std::byte{kSlow});
}

TEST_F(ShmPut, a_second_writer_is_refused_and_hides_nothing) {
  const Window window = owner_->open_window().value();
  gate_.shut();
  std::thread writer([&] { EXPECT_TRUE(put(window, 7)); });
  gate_.wait_for_one();
  // The owner itself may write through the world, too.
  const auto status = put_bytes(*owner_, target(window), 9, 64);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(at(0), 7);
  owner_->close_window(window);
  EXPECT_FALSE(owner_->quiet(window));
  gate_.open();
  writer.join();
  EXPECT_TRUE(owner_->quiet(window));
}

TEST_F(ShmPut, a_used_slot_never_takes_an_old_tag) {
  std::vector<Window> old;
  for (int i = 0; i < 100; ++i) {
    const Window window = owner_->open_window().value();
    for (const Window& before : old) {
      ASSERT_NE(before.tag, window.tag);
      ASSERT_FALSE(put(before, 1));
      ASSERT_FALSE(sender_->signal(target(before)));
    }
    EXPECT_FALSE(owner_->signalled(window));
    ASSERT_TRUE(sender_->signal(target(window)));
    EXPECT_TRUE(owner_->signalled(window));
    owner_->close_window(window);
    EXPECT_TRUE(owner_->quiet(window));
    owner_->free_window(window);
    owner_->close_window(window);  // an old name has no effect any more
    owner_->free_window(window);
    EXPECT_TRUE(owner_->quiet(window));
    old.push_back(window);
  }
  EXPECT_EQ(at(0), 0);
}

TEST_F(ShmPut, windows_run_out_and_come_back) {
  std::vector<Window> windows;
  for (int i = 0; i < 16; ++i) windows.push_back(owner_->open_window().value());
  const auto none = owner_->open_window();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(none.error().retryable);
  owner_->close_window(windows[3]);
  EXPECT_FALSE(owner_->open_window()) << "closed is not free";
  EXPECT_TRUE(owner_->quiet(windows[3]));
  owner_->free_window(windows[3]);
  EXPECT_EQ(owner_->open_window().value().slot, windows[3].slot);
}

TEST(ShmCopy, copies_any_size_to_any_place) {
  std::vector<std::byte> from(20000), to(20200);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + 7);
  for (const size_t n : {0, 1, 63, 64, 127, 128, 4095, 4096, 4097, 12288, 20000}) {
    for (const size_t at : {0, 1, 16, 63, 64}) {
      for (const auto copy : {copy_out, copy_streaming}) {
        std::fill(to.begin(), to.end(), std::byte{0xee});
        copy(to.data() + at, std::span(from).first(n));
        ASSERT_TRUE(std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(n),
                               to.begin() + static_cast<std::ptrdiff_t>(at)));
        ASSERT_TRUE(at == 0 || to[at - 1] == std::byte{0xee});
        ASSERT_EQ(to[at + n], std::byte{0xee});
      }
    }
  }
}

/// One owner opens windows over its own part of memory, closes each at a random moment, waits until
/// it is quiet, and from then on nothing may change there; two senders put as fast as they can.
TEST(ShmPutStress, no_byte_is_written_after_quiet) {
  const std::string uid = new_uid();
  auto options = std::vector{member_of(uid, 3, 0), member_of(uid, 3, 1), member_of(uid, 3, 2)};
  const auto heaps = join_all_or_die(options);
  Heap& owner = *heaps[2];
  constexpr size_t kPartBytes = 4096;
  constexpr int kParts = 8;
  struct Part {
    std::mutex mutex;
    std::optional<Window> window;  ///< what the senders are told
  };
  std::vector<Part> parts(kParts);
  std::atomic<bool> stop = false;
  std::atomic<int> n_put = 0, n_refused = 0;

  const auto send = [&](size_t heap) {
    std::mt19937 random(static_cast<unsigned>(heap));
    // Each sender has its parts: a window has one writer.
    while (!stop) {
      const size_t i = random() % (kParts / 2) * 2 + heap;
      std::optional<Window> window;
      {
        const std::lock_guard lock(parts[i].mutex);
        window = parts[i].window;
      }
      if (!window) continue;
      // Not under the lock: the window may be closed, reused, anything.
      const Target target = target_at(owner, 2, *window);
      const int value = 1 + static_cast<int>(random() % 255);
      if (put_bytes(*heaps[heap], target, value, kPartBytes, i * kPartBytes)) {
        ++n_put;
      } else {
        ++n_refused;
        std::this_thread::yield();
      }
      if (random() % 4 == 0) (void)heaps[heap]->signal(target);
    }
  };
  std::vector<std::thread> senders;
  for (const size_t heap : {0, 1}) senders.emplace_back(send, heap);

  std::mt19937 random(1);
  const auto memory = owner.local({2});
  const auto hash = [&](size_t part) {
    const auto bytes = memory.subspan(part * kPartBytes, kPartBytes);
    return std::hash<std::string_view>()(
        {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  // Until there was enough of both, however the threads were scheduled.
  for (int round = 0; round < 800 || n_put < 100 || n_refused < 100; ++round) {
    const size_t i = random() % kParts;
    const Window window = owner.open_window().value();
    {
      const std::lock_guard lock(parts[i].mutex);
      parts[i].window = window;
    }
    for (unsigned spin = random() % 3; spin > 0; --spin) std::this_thread::yield();
    owner.close_window(window);
    while (!owner.quiet(window)) std::this_thread::yield();
    if (random() % 2 == 0) owner.free_window(window);
    const size_t before = hash(i);
    for (unsigned spin = random() % 3; spin > 0; --spin) std::this_thread::yield();
    ASSERT_EQ(hash(i), before) << "round " << round;
    ASSERT_TRUE(owner.quiet(window));
    owner.free_window(window);
  }
  stop = true;
  for (auto& sender : senders) sender.join();
}

}  // namespace
}  // namespace baton::shmem
