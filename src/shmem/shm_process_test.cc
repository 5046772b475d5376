// Members in processes of their own: death, stops, and what they leave behind.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "shmem/shm_test_support.h"

namespace baton::shmem {
namespace {

constexpr uint64_t kReady = 1;

/// Hears a window of PE `pe`, whose incarnation it has joined with.
Target hear_target(const Child::Parent& parent, const Heap& heap, int pe) {
  const auto slot = static_cast<int32_t>(parent.hear());
  const uint64_t tag = parent.hear();
  return {{pe}, heap.peer({pe})->incarnation, {slot, tag}};
}

void tell_window(const Child& child, const Window& window) {
  child.tell(static_cast<uint64_t>(window.slot));
  child.tell(window.tag);
}

std::unique_ptr<Heap> join_or_die(ShmHeapOptions options) {
  auto heaps = join_all_or_die({std::move(options)});
  return std::move(heaps[0]);
}

TEST(ShmProcess, puts_arrive_between_processes) {
  const std::string uid = new_uid();
  const Child child([&](const Child::Parent& parent) {
    auto heap = join_or_die(member_of(uid, 2, 0));
    const Target target = hear_target(parent, *heap, 1);
    std::vector<std::byte> bytes(60000);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
    const Piece piece{1001, bytes};
    parent.tell(heap->put(target, {&piece, 1}).has_value());
    parent.tell(heap->signal(target).has_value());
    (void)parent.hear();
  });
  const auto owner = join_or_die(member_of(uid, 2, 1));
  EXPECT_EQ(owner->peer({0})->pid, child.pid());
  const Window window = owner->open_window().value();
  tell_window(child, window);
  EXPECT_EQ(child.hear(), 1U);
  EXPECT_EQ(child.hear(), 1U);
  ASSERT_TRUE(owner->signalled(window));
  const auto memory = owner->local({1});
  for (size_t i = 0; i < 60000; ++i) {
    ASSERT_EQ(memory[1001 + i], static_cast<std::byte>(i * 7)) << i;
  }
}

TEST(ShmProcess, a_writer_that_is_killed_in_the_middle_leaves_a_quiet_window) {
  const std::string uid = new_uid();
  Child child([&](const Child::Parent& parent) {
    auto options = member_of(uid, 2, 0);
    options.copy = [&](std::byte* to, std::span<const std::byte> from) {
      std::memcpy(to, from.data(), from.size() / 2);
      parent.tell(kReady);
      (void)parent.hear();  // never comes
    };
    auto heap = join_or_die(options);
    (void)put_bytes(*heap, hear_target(parent, *heap, 1), 7, 64);
  });
  const auto owner = join_or_die(member_of(uid, 2, 1));
  const Window window = owner->open_window().value();
  tell_window(child, window);
  ASSERT_EQ(child.hear(), kReady);
  owner->close_window(window);
  // Stopped is not dead: it may go on.
  child.kill(SIGSTOP);
  child.wait_stopped();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(owner->quiet(window));
  EXPECT_TRUE(owner->peer({0}));
  child.kill(SIGKILL);
  EXPECT_TRUE(eventually([&] { return owner->quiet(window); }));
  EXPECT_TRUE(eventually([&] { return !owner->peer({0}); }));
  owner->free_window(window);
  // All slots work again, the one that the dead one was in too.
  for (int i = 0; i < 16; ++i) {
    const Window next = owner->open_window().value();
    EXPECT_TRUE(put_bytes(*owner, target_at(*owner, 1, next), 1, 1));
  }
}

TEST(ShmProcess, the_memory_of_the_dead_is_unmapped_and_its_descriptors_are_closed) {
  const std::string uid = new_uid();
  const auto body = [&](const Child::Parent& parent) {
    if (parent.hear() != kReady) return;
    auto options = member_of(uid, 2, 0);
    options.world.join = Join::kLater;
    auto heap = join_or_die(options);
    parent.tell(heap->incarnation());
    (void)parent.hear();
  };
  Child first(body), second(body);
  auto options = member_of(uid, 2, 1);
  options.world.join = Join::kLater;
  const auto owner = join_or_die(options);
  const int n_fds = count_open_fds();
  EXPECT_EQ(count_heap_mappings(), 1);
  uint64_t last = 0;
  for (Child* child : {&first, &second}) {
    child->tell(kReady);
    const uint64_t incarnation = child->hear();
    EXPECT_GT(incarnation, last);
    ASSERT_TRUE(eventually([&] { return owner->peer({0}).has_value(); }));
    EXPECT_EQ(owner->peer({0})->incarnation, incarnation);
    EXPECT_EQ(count_heap_mappings(), 2);
    EXPECT_GT(count_open_fds(), n_fds);
    if (last != 0) {
      const Target old{{0}, last, {0, 1}};
      EXPECT_EQ(put_bytes(*owner, old, 1, 1).error().code, ErrorCode::kUnavailable);
    }
    last = incarnation;
    child->kill(SIGKILL);
    EXPECT_TRUE(eventually([&] { return !owner->peer({0}); }));
    EXPECT_TRUE(eventually([&] { return count_heap_mappings() == 1; }));
    EXPECT_TRUE(eventually([&] { return count_open_fds() == n_fds; }));
  }
}

TEST(ShmProcess, an_owner_that_is_stopped_uses_no_cpu_while_it_receives) {
  const std::string uid = new_uid();
  constexpr size_t kBytes = size_t{8} << 20;
  Child child([&](const Child::Parent& parent) {
    auto options = member_of(uid, 2, 1);
    options.bytes_per_pe = kBytes;
    auto heap = join_or_die(options);
    const Window window = heap->open_window().value();
    parent.tell(static_cast<uint64_t>(window.slot));
    parent.tell(window.tag);
    while (!heap->signalled(window)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    uint64_t sum = 0;
    for (const std::byte b : heap->local({1})) sum += static_cast<uint64_t>(b);
    parent.tell(sum);
    (void)parent.hear();
  });
  const auto sender = join_or_die(member_of(uid, 2, 0));
  const auto slot = static_cast<int32_t>(child.hear());
  const Target target{{1}, sender->peer({1})->incarnation, {slot, child.hear()}};
  child.kill(SIGSTOP);
  child.wait_stopped();
  const int64_t before = child.cpu_ns();
  for (size_t offset = 0; offset < kBytes; offset += 65536) {
    ASSERT_TRUE(put_bytes(*sender, target, 3, 65536, offset));
  }
  ASSERT_TRUE(sender->signal(target));
  EXPECT_EQ(child.cpu_ns(), before);
  child.kill(SIGCONT);
  EXPECT_EQ(child.hear(), 3 * kBytes);
}

TEST(ShmProcess, another_user_is_turned_away) {
  if (geteuid() != 0) GTEST_SKIP() << "skipped: only root can become another user";
  const std::string uid = new_uid();
  constexpr uid_t kNobody = 65534;
  const Child child([&](const Child::Parent& parent) {
    if (parent.hear() != kReady || seteuid(kNobody) != 0) return;
    auto options = member_of(uid, 2, 0);
    options.join_timeout = std::chrono::milliseconds(150);
    const auto heap = ShmHeap::create(options);
    parent.tell(!heap && heap.error().message.find("belongs to user 0, expected 65534") !=
                             std::string::npos);
  });
  auto options = member_of(uid, 2, 1);
  options.world.join = Join::kLater;
  const auto heap = join_or_die(options);
  child.tell(kReady);
  EXPECT_EQ(child.hear(), 1U);
  EXPECT_FALSE(heap->peer({0}));
}

TEST(ShmProcess, a_later_join_does_not_wait_for_one_that_is_stopped) {
  const std::string uid = new_uid();
  Child child([&](const Child::Parent& parent) {
    auto options = member_of(uid, 3, 0);
    options.world.join = Join::kLater;
    auto heap = join_or_die(options);
    parent.tell(kReady);
    (void)parent.hear();
    while (!heap->peer({1})) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    parent.tell(heap->peer({1})->incarnation);
    (void)parent.hear();
  });
  ASSERT_EQ(child.hear(), kReady);
  child.kill(SIGSTOP);
  child.wait_stopped();
  auto options = member_of(uid, 3, 1);
  options.world.join = Join::kLater;
  options.join_timeout = std::chrono::milliseconds(100);
  const auto heap = join_or_die(options);
  EXPECT_FALSE(heap->peer({0}));
  child.kill(SIGCONT);
  EXPECT_TRUE(eventually([&] { return heap->peer({0}).has_value(); }));
  child.tell(kReady);
  EXPECT_EQ(child.hear(), heap->incarnation());
}

TEST(ShmProcess, one_that_dies_in_the_middle_of_joining_is_missing) {
  const std::string uid = new_uid();
  Child child([&](const Child::Parent& parent) {
    auto heap = ShmHeap::create(member_of(uid, 3, 0));
    parent.tell(kReady);
  });
  auto options = member_of(uid, 3, 1);
  options.join_timeout = std::chrono::milliseconds(400);
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    child.kill(SIGKILL);
  });
  const auto heap = ShmHeap::create(options);
  killer.join();
  ASSERT_FALSE(heap);
  EXPECT_NE(heap.error().message.find("nobody came for PE 2 within 400 ms"), std::string::npos)
      << heap.error().message;
  EXPECT_NE(heap.error().message.find("engine 0 at PE 0 came, but has left"), std::string::npos)
      << heap.error().message;
}

/// Two writers in processes of their own are killed at random moments of their puts, and come back.
TEST(ShmProcess, writers_killed_at_random_never_write_after_quiet) {
  const std::string uid = new_uid();
  constexpr int kRounds = 12;
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < kRounds; ++i) {
    children.push_back(std::make_unique<Child>([&](const Child::Parent& parent) {
      if (parent.hear() != kReady) return;
      auto options = member_of(uid, 2, 0);
      options.world.join = Join::kLater;
      auto heap = join_or_die(options);
      const Target target = hear_target(parent, *heap, 1);
      for (int value = 1;; value = value % 255 + 1) {
        if (!put_bytes(*heap, target, value, 65536)) break;
      }
      (void)parent.hear();
    }));
  }
  auto options = member_of(uid, 2, 1);
  options.world.join = Join::kLater;
  const auto owner = join_or_die(options);
  for (int i = 0; i < kRounds; ++i) {
    children[static_cast<size_t>(i)]->tell(kReady);
    ASSERT_TRUE(eventually([&] { return owner->peer({0}).has_value(); }));
    const Window window = owner->open_window().value();
    tell_window(*children[static_cast<size_t>(i)], window);
    ASSERT_TRUE(eventually([&] { return owner->progress(window) > 0; }));
    std::this_thread::sleep_for(std::chrono::microseconds(37 * i));
    if (i % 2 == 0) owner->close_window(window);
    children[static_cast<size_t>(i)]->kill(SIGKILL);
    owner->close_window(window);
    ASSERT_TRUE(eventually([&] { return owner->quiet(window); }));
    const auto memory = owner->local({1});
    const std::vector<std::byte> before(memory.begin(), memory.end());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ASSERT_EQ(std::memcmp(before.data(), memory.data(), before.size()), 0);
    owner->free_window(window);
    children[static_cast<size_t>(i)].reset();
    ASSERT_TRUE(eventually([&] { return !owner->peer({0}); }));
  }
}

}  // namespace
}  // namespace baton::shmem
