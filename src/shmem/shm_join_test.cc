// Who gets into a world, and what those who don't are told. All members live in this process.
#include <gtest/gtest.h>

#include <thread>

#include "shmem/shm_test_support.h"

namespace baton::shmem {
namespace {

bool has(const Error& error, const std::string& text) {
  return error.message.find(text) != std::string::npos;
}

TEST(ShmJoin, three_one_and_two_devices_start_at_0_3_and_4_of_6) {
  const std::string uid = new_uid();
  auto a = member_of(uid, 6, 0);
  auto b = member_of(uid, 6, 3);
  auto c = member_of(uid, 6, 4);
  a.n_pes = 3;
  c.n_pes = 2;
  a.member.info = "prefill";
  c.bytes_per_pe = 4096;
  const auto heaps = join_all_or_die({a, b, c});
  for (const auto& heap : heaps) {
    EXPECT_EQ(heap->n_pes(), 6);
    // Every one sees every one, in its place.
    for (const auto& [pe, first, n] :
         {std::tuple{0, 0, 3}, {1, 0, 3}, {2, 0, 3}, {3, 3, 1}, {4, 4, 2}, {5, 4, 2}}) {
      const auto peer = heap->peer({pe});
      ASSERT_TRUE(peer) << pe;
      EXPECT_EQ(peer->first_pe.value, first);
      EXPECT_EQ(peer->n_pes, n);
      EXPECT_EQ(peer->pid, getpid());
      EXPECT_EQ(peer->member.name, fmt::format("engine {}", first));
    }
    EXPECT_EQ(heap->peer({1})->member.info, "prefill");
    EXPECT_FALSE(heap->peer({6}));
    EXPECT_FALSE(heap->peer({-1}));
  }
  EXPECT_EQ(heaps[0]->first_pe().value, 0);
  EXPECT_EQ(heaps[1]->first_pe().value, 3);
  EXPECT_EQ(heaps[2]->first_pe().value, 4);
  EXPECT_EQ(heaps[2]->local({5}).size(), 4096U);
  EXPECT_EQ(heaps[1]->peer({4})->incarnation, heaps[2]->incarnation());

  // From each to each PE, the own ones too.
  for (int pe = 0; pe < 6; ++pe) {
    auto& owner = *heaps[pe < 3 ? 0 : (pe < 4 ? 1 : 2)];
    for (size_t from = 0; from < 3; ++from) {
      const Window window = owner.open_window().value();
      const int value = pe * 3 + static_cast<int>(from) + 1;
      ASSERT_TRUE(put_bytes(*heaps[from], target_at(owner, pe, window), value, 8, 8 * from));
      ASSERT_TRUE(heaps[from]->signal(target_at(owner, pe, window)));
      EXPECT_TRUE(owner.signalled(window));
      EXPECT_EQ(static_cast<int>(owner.local({pe})[8 * from + 7]), value);
    }
  }
}

TEST(ShmJoin, many_members_at_once) {
  const std::string uid = new_uid();
  std::vector<ShmHeapOptions> options;
  for (int pe = 0; pe < 12; ++pe) options.push_back(member_of(uid, 12, pe));
  const auto heaps = join_all_or_die(options);
  for (const auto& heap : heaps) {
    for (const auto& other : heaps) {
      ASSERT_EQ(heap->peer(other->first_pe())->incarnation, other->incarnation());
    }
  }
}

TEST(ShmJoin, the_time_out_names_who_is_missing) {
  const std::string uid = new_uid();
  auto a = member_of(uid, 6, 0);
  auto c = member_of(uid, 6, 4);
  a.n_pes = 3;
  a.join_timeout = c.join_timeout = std::chrono::milliseconds(300);
  const auto results = join_all({a, c});
  for (const auto& result : results) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
    EXPECT_TRUE(has(result.error(), "nobody came for PE 3, PE 5 within 300 ms"))
        << result.error().message;
    EXPECT_TRUE(has(result.error(), uid));
  }
}

class ShmMismatch : public testing::TestWithParam<Field> {};

TEST_P(ShmMismatch, is_refused_on_both_sides_with_both_values_and_both_names) {
  const std::string uid = new_uid();
  auto a = member_of(uid, 2, 0);
  a.member.name = "engine 0 (prefill)";
  a.member.descriptor = {{"model", "smollm2"}, {"block size", "16"}, {"dtype", "bf16"},
                         {"layers", "30"},     {"heads", "3"},       {"head_dim", "64"}};
  auto b = a;
  b.world.pe_start = 1;
  b.member.name = "engine 1 (decode)";
  const Field other = GetParam();
  std::string value;
  for (Field& field : b.member.descriptor) {
    if (field.name == other.name) value = std::exchange(field.value, other.value);
  }
  ASSERT_FALSE(value.empty());
  const auto results = join_all({a, b});
  for (const auto& result : results) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(has(result.error(),
                    fmt::format("{} is {} in engine 0 (prefill) at PE 0, but {} in engine 1 "
                                "(decode) at PE 1",
                                other.name, value, other.value)))
        << result.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(fields, ShmMismatch,
                         testing::Values(Field{"block size", "32"}, Field{"dtype", "f32"},
                                         Field{"layers", "18"}, Field{"heads", "1"},
                                         Field{"head_dim", "256"}, Field{"model", "gemma3"}));

TEST(ShmJoin, a_field_that_only_one_has_is_a_mismatch) {
  const std::string uid = new_uid();
  auto a = member_of(uid, 2, 0);
  auto b = member_of(uid, 2, 1);
  b.member.descriptor = {{"rope", "yarn"}};
  for (const auto& result : join_all({a, b})) {
    ASSERT_FALSE(result);
    EXPECT_TRUE(has(result.error(), "rope is absent in engine 0 at PE 0, but yarn in engine 1"));
  }
}

TEST(ShmJoin, another_npes_is_a_mismatch) {
  const std::string uid = new_uid();
  for (const auto& result : join_all({member_of(uid, 2, 0), member_of(uid, 3, 1)})) {
    ASSERT_FALSE(result);
    EXPECT_TRUE(has(result.error(), "npes is 2 in engine 0 at PE 0, but 3 in engine 1 at PE 1"))
        << result.error().message;
  }
}

TEST(ShmJoin, overlapping_devices_are_refused_on_both_sides) {
  const std::string uid = new_uid();
  auto a = member_of(uid, 6, 0);
  auto b = member_of(uid, 6, 2);
  a.n_pes = 4;
  b.n_pes = 3;
  for (const auto& result : join_all({a, b})) {
    ASSERT_FALSE(result);
    EXPECT_TRUE(has(result.error(), "engine 0 at PE 0-3 and engine 2 at PE 2-4 both claim PE 2-3"))
        << result.error().message;
  }
}

TEST(ShmJoin, a_place_is_given_once) {
  const std::string uid = new_uid();
  const auto heaps = join_all_or_die({member_of(uid, 1, 0)});
  auto again = member_of(uid, 1, 0);
  again.join_timeout = std::chrono::milliseconds(50);
  const auto second = ShmHeap::create(again);
  ASSERT_FALSE(second);
  EXPECT_TRUE(has(second.error(), fmt::format("PE 0 is taken by process {}", getpid())))
      << second.error().message;
  EXPECT_TRUE(heaps[0]->peer({0}));
}

TEST(ShmJoin, worlds_with_another_uid_do_not_meet) {
  auto a = member_of(new_uid(), 2, 0);
  auto b = member_of(new_uid(), 2, 1);
  a.join_timeout = b.join_timeout = std::chrono::milliseconds(200);
  const auto results = join_all({a, b});
  EXPECT_TRUE(has(results[0].error(), "nobody came for PE 1"));
  EXPECT_TRUE(has(results[1].error(), "nobody came for PE 0"));
}

TEST(ShmJoin, bad_options_are_refused_by_name) {
  auto options = member_of(new_uid(), 2, 1);
  options.n_pes = 2;
  EXPECT_TRUE(has(ShmHeap::create(options).error(), "don't fit into npes 2"));
  options.n_pes = 1;
  options.bytes_per_pe = 0;
  EXPECT_TRUE(has(ShmHeap::create(options).error(), "0 bytes"));
  options.bytes_per_pe = 1;
  options.member.info = std::string(5000, 'x');
  EXPECT_TRUE(has(ShmHeap::create(options).error(), "info has 5000 bytes, expected up to 4096"));
  options.member.info.clear();
  options.n_windows = 0;
  EXPECT_TRUE(has(ShmHeap::create(options).error(), "0 windows"));
}

TEST(ShmJoin, a_later_join_waits_for_nobody_and_finds_who_is_there) {
  const std::string uid = new_uid();
  auto a = member_of(uid, 3, 1);
  a.world.join = Join::kLater;
  const auto first = ShmHeap::create(a);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_FALSE((*first)->peer({0}));

  auto b = member_of(uid, 3, 0);
  b.world.join = Join::kLater;
  const auto second = ShmHeap::create(b);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ((*second)->peer({1})->incarnation, (*first)->incarnation());
  EXPECT_TRUE(eventually([&] { return (*first)->peer({0}).has_value(); }));
}

TEST(ShmJoin, a_later_join_that_does_not_fit_is_refused_and_disturbs_nobody) {
  const std::string uid = new_uid();
  auto a = member_of(uid, 3, 0);
  auto b = member_of(uid, 3, 1);
  auto c = member_of(uid, 3, 2);
  a.member.descriptor = b.member.descriptor = c.member.descriptor = {{"dtype", "bf16"}};
  auto heaps = join_all_or_die({a, b, c});
  heaps.pop_back();
  ASSERT_TRUE(eventually([&] { return !heaps[0]->peer({2}) && !heaps[1]->peer({2}); }));

  c.world.join = Join::kLater;
  c.member.descriptor[0].value = "f32";
  const auto refused = ShmHeap::create(c);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(has(refused.error(), "but f32 in engine 2")) << refused.error().message;
  EXPECT_TRUE(heaps[0]->peer({1}));
  EXPECT_TRUE(heaps[1]->peer({0}));

  c.member.descriptor[0].value = "bf16";
  const auto back = ShmHeap::create(c);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_TRUE((*back)->peer({0}));
  EXPECT_TRUE((*back)->peer({1}));
}

TEST(ShmJoin, a_later_join_gets_devices_of_another_only_when_that_one_goes) {
  const std::string uid = new_uid();
  auto a = member_of(uid, 3, 0);
  auto c = member_of(uid, 3, 2);
  a.world.join = c.world.join = Join::kLater;
  const auto first = ShmHeap::create(a).value();
  auto holder = ShmHeap::create(c).value();
  auto wide = member_of(uid, 3, 1);
  wide.world.join = Join::kLater;
  wide.n_pes = 2;
  wide.join_timeout = std::chrono::milliseconds(120);
  const auto refused = ShmHeap::create(wide);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(has(refused.error(), "engine 1 at PE 1-2 and engine 2 at PE 2 both claim PE 2"))
      << refused.error().message;
  EXPECT_TRUE(holder->peer({0}));

  wide.join_timeout = std::chrono::seconds(20);
  std::thread leaver([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    holder.reset();
  });
  const auto joined = ShmHeap::create(wide);
  leaver.join();
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_TRUE((*joined)->peer({0}));
  EXPECT_TRUE(eventually([&] {
    const auto peer = first->peer({2});
    return peer && peer->incarnation == (*joined)->incarnation();
  }));
}

TEST(ShmJoin, a_member_that_comes_back_is_another_incarnation) {
  const std::string uid = new_uid();
  auto heaps = join_all_or_die({member_of(uid, 2, 0), member_of(uid, 2, 1)});
  Heap& sender = *heaps[0];
  const Window old_window = heaps[1]->open_window().value();
  const Target old = target_at(*heaps[1], 1, old_window);
  ASSERT_TRUE(put_bytes(sender, old, 1, 16));

  auto again = member_of(uid, 2, 1);
  again.world.join = Join::kLater;
  for (int i = 0; i < 10; ++i) {
    heaps[1].reset();
    heaps[1] = ShmHeap::create(again).value();
    // It has connected to the living, so both know of the new one.
    ASSERT_TRUE(eventually([&] {
      const auto peer = sender.peer({1});
      return peer && peer->incarnation == heaps[1]->incarnation();
    }));
    const Window window = heaps[1]->open_window().value();
    EXPECT_EQ(window.slot, old_window.slot);
    EXPECT_EQ(window.tag, old_window.tag) << "the incarnation has to tell them apart";
    EXPECT_EQ(put_bytes(sender, old, 2, 16).error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(sender.signal(old).error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(static_cast<int>(heaps[1]->local({1})[0]), 0);
    EXPECT_FALSE(heaps[1]->signalled(window));
    EXPECT_TRUE(put_bytes(sender, target_at(*heaps[1], 1, window), 3, 16));
    EXPECT_EQ(static_cast<int>(heaps[1]->local({1})[0]), 3);
  }
}

TEST(ShmJoin, nothing_is_left_behind) {
  const int n_fds = count_open_fds();
  for (int i = 0; i < 3; ++i) {
    const std::string uid = new_uid();
    const auto heaps =
        join_all_or_die({member_of(uid, 3, 0), member_of(uid, 3, 1), member_of(uid, 3, 2)});
    // Each maps each: the own one, and two of others.
    EXPECT_TRUE(eventually([] { return count_heap_mappings() == 9; }));
    EXPECT_GT(count_open_fds(), n_fds);
  }
  EXPECT_EQ(count_heap_mappings(), 0);
  EXPECT_EQ(count_open_fds(), n_fds);
}

}  // namespace
}  // namespace baton::shmem
