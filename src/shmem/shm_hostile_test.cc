// Connections that don't keep to the protocol: none of them disturbs a heap.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "shmem/shm/endpoint.h"
#include "shmem/shm/wire.h"
#include "shmem/shm_test_support.h"

namespace baton::shmem {
namespace {

/// Waits for the next packet; nothing = the other end has closed.
std::optional<Packet> next_packet(const Fd& socket) {
  while (true) {
    pollfd entry{socket.get(), POLLIN, 0};
    if (poll(&entry, 1, 20'000) <= 0) return std::nullopt;
    auto packet = receive_packet(socket);
    if (!packet) return std::nullopt;
    if (*packet) return std::move(**packet);
  }
}

class ShmHostile : public testing::Test {
 protected:
  ShmHostile() {
    auto heaps = join_all_or_die({place(0), place(1), place(2)});
    heaps.pop_back();  // place 2 is free again
    a_ = std::move(heaps[0]);
    b_ = std::move(heaps[1]);
    EXPECT_TRUE(eventually([&] { return !a_->peer({2}) && !b_->peer({2}); }));
    n_fds_ = count_open_fds();
  }
  ~ShmHostile() override {
    // Whatever was done: all is as before, and the world goes on.
    EXPECT_TRUE(eventually([&] { return count_open_fds() == n_fds_; }))
        << count_open_fds() << " instead of " << n_fds_;
    EXPECT_EQ(count_heap_mappings(), 4);
    EXPECT_FALSE(a_->peer({2}));
    const Window window = b_->open_window().value();
    EXPECT_TRUE(put_bytes(*a_, target_at(*b_, 1, window), 5, 100));
    EXPECT_TRUE(a_->signal(target_at(*b_, 1, window)));
    EXPECT_TRUE(b_->signalled(window));
    auto late = place(2);
    late.world.join = Join::kLater;
    const auto heap = ShmHeap::create(late);
    EXPECT_TRUE(heap) << heap.error().message;
    EXPECT_TRUE((*heap)->peer({0}));
    EXPECT_TRUE((*heap)->peer({1}));
  }

  ShmHeapOptions place(int pe) const {
    auto options = member_of(uid_, 3, pe);
    options.member.descriptor = {{"dtype", "bf16"}};
    return options;
  }
  Hello hello() const {
    Hello hello;
    hello.uid = uid_;
    hello.npes = 3;
    hello.first_pe = 2;
    hello.incarnation = 77;
    hello.shape = {.n_pes = 1, .bytes_per_pe = 4096, .n_windows = 4};
    hello.member = {.name = "stranger", .descriptor = {{"dtype", "bf16"}}, .info = {}};
    return hello;
  }
  Fd dial_a() const { return dial(socket_name(uid_, 0)); }
  /// What a_ says to this; it must close the connection then.
  static std::optional<Refusal> answer_to(const Fd& socket) {
    std::optional<Refusal> refusal;
    while (auto packet = next_packet(socket)) {
      auto message = parse_message(packet->bytes);
      if (message && std::holds_alternative<Refusal>(*message)) {
        refusal = std::get<Refusal>(*message);
      }
    }
    return refusal;
  }
  std::optional<Refusal> answer_to_bytes(std::span<const std::byte> bytes) const {
    const Fd socket = dial_a();
    EXPECT_TRUE(send_packet(socket, bytes));
    return answer_to(socket);
  }
  /// Says hello rightly and then sends a grant with these descriptors.
  std::optional<Refusal> answer_to_grant(std::span<const int> fds, uint64_t ticket = 1) {
    const Fd socket = dial_a();
    EXPECT_TRUE(send_packet(socket, encode(hello())));
    const auto packet = next_packet(socket);
    EXPECT_TRUE(packet);
    EXPECT_TRUE(packet->fds.empty()) << "memory comes only after the other's is there";
    const auto reply = parse_message(packet->bytes);
    EXPECT_TRUE(reply && std::holds_alternative<Hello>(*reply));
    EXPECT_TRUE(send_packet(socket, encode(Grant{ticket}), fds));
    return answer_to(socket);
  }
  static Fd memfd(size_t n_bytes, int seals) {
    Fd fd(memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(n_bytes)), 0);
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
  }
  static constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

  const std::string uid_ = new_uid();
  std::unique_ptr<Heap> a_, b_;
  int n_fds_ = 0;
};

TEST_F(ShmHostile, garbage_is_answered_and_dropped) {
  for (const size_t n : {1, 7, 16, 100, 65536}) {
    const std::vector<std::byte> bytes(n, std::byte{0x5a});
    const auto refusal = answer_to_bytes(bytes);
    ASSERT_TRUE(refusal) << n;
    EXPECT_EQ(refusal->code, Refusal::Code::kMalformed);
  }
}

TEST_F(ShmHostile, too_long_a_message) {
  const std::vector<std::byte> bytes(kMaxMessageBytes + 1, std::byte{0x5a});
  const auto refusal = answer_to_bytes(bytes);
  ASSERT_TRUE(refusal);
  EXPECT_NE(refusal->text.find("too many bytes"), std::string::npos) << refusal->text;
}

TEST_F(ShmHostile, every_cut_of_a_hello) {
  const auto whole = encode(hello());
  for (size_t n = 1; n < whole.size(); n += 5) {
    const auto refusal = answer_to_bytes(std::span(whole).first(n));
    ASSERT_TRUE(refusal) << n;
    EXPECT_EQ(refusal->code, Refusal::Code::kMalformed);
  }
}

TEST_F(ShmHostile, hellos_of_other_worlds_and_other_ranges) {
  Hello other = hello();
  other.uid = "another";
  EXPECT_EQ(answer_to_bytes(encode(other))->code, Refusal::Code::kMismatch);
  other = hello();
  other.npes = 4;
  EXPECT_EQ(answer_to_bytes(encode(other))->code, Refusal::Code::kMismatch);
  other = hello();
  other.first_pe = 1;
  EXPECT_EQ(answer_to_bytes(encode(other))->code, Refusal::Code::kOverlap);
  other.first_pe = 0;
  EXPECT_EQ(answer_to_bytes(encode(other))->code, Refusal::Code::kOverlap);
  other = hello();
  other.shape.bytes_per_pe = SIZE_MAX;
  EXPECT_EQ(answer_to_bytes(encode(other))->code, Refusal::Code::kMalformed);
}

TEST_F(ShmHostile, messages_out_of_turn) {
  const Fd doorbell = make_doorbell().value();
  const int fd = doorbell.get();
  EXPECT_EQ(answer_to_bytes(encode(Grant{1}))->code, Refusal::Code::kMalformed);
  const Fd with_fds = dial_a();
  ASSERT_TRUE(send_packet(with_fds, encode(hello()), {&fd, 1}));
  EXPECT_EQ(answer_to(with_fds)->code, Refusal::Code::kMalformed);
  const Fd twice = dial_a();
  ASSERT_TRUE(send_packet(twice, encode(hello())));
  ASSERT_TRUE(send_packet(twice, encode(hello())));
  EXPECT_EQ(answer_to(twice)->code, Refusal::Code::kMalformed);
}

TEST_F(ShmHostile, grants_with_wrong_descriptors) {
  const Fd doorbell = make_doorbell().value();
  const size_t n_bytes = hello().shape.total_bytes();
  const Fd good = memfd(n_bytes, kAllSeals);
  const Fd unsealed = memfd(n_bytes, F_SEAL_GROW);
  const Fd small = memfd(n_bytes - 4096, kAllSeals);
  const Fd large = memfd(n_bytes + 4096, kAllSeals);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd pipe_in(ends[0]), pipe_out(ends[1]);
  const auto refused = [&](std::vector<int> fds, const std::string& why) {
    const auto refusal = answer_to_grant(fds);
    ASSERT_TRUE(refusal) << why;
    EXPECT_EQ(refusal->code, Refusal::Code::kMalformed);
    EXPECT_NE(refusal->text.find(why), std::string::npos) << refusal->text;
  };
  const int bell = doorbell.get();
  refused({}, "0 descriptors, expected 2");
  refused({good.get()}, "1 descriptors, expected 2");
  refused({good.get(), bell, bell}, "3 descriptors, expected 2");
  refused({bell, good.get()}, "isn't a memfd of sealed size");
  refused({unsealed.get(), bell}, "isn't a memfd of sealed size");
  refused({pipe_in.get(), bell}, "isn't a memfd of sealed size");
  refused({small.get(), bell}, "bytes, expected");
  refused({large.get(), bell}, "bytes, expected");
  refused({good.get(), pipe_out.get()}, "isn't an eventfd");
  EXPECT_EQ(answer_to_grant(std::vector<int>{good.get(), bell}, 0)->code,
            Refusal::Code::kMalformed);
}

TEST_F(ShmHostile, hundreds_that_say_nothing) {
  std::vector<Fd> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(dial_a());
  auto late = place(2);
  late.world.join = Join::kLater;
  const auto heap = ShmHeap::create(late);
  ASSERT_TRUE(heap) << heap.error().message;
  EXPECT_TRUE((*heap)->peer({0}));
}

TEST(ShmImpostor, one_that_listens_in_a_member_s_place_is_reported_and_not_believed) {
  for (const bool lies : {false, true}) {
    const std::string uid = new_uid();
    const Fd listening = listen_at(socket_name(uid, 1)).value();
    std::atomic<bool> stop = false;
    std::thread impostor([&] {
      std::vector<Fd> connections;
      while (!stop) {
        Fd fd = accept_one(listening);
        if (!fd.valid()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          continue;
        }
        Hello hello;
        hello.uid = uid;
        hello.npes = 2;
        hello.first_pe = 0;  // a lie: this is the place of PE 1
        hello.incarnation = 1;
        hello.shape = {.n_pes = 1, .bytes_per_pe = 1, .n_windows = 1};
        (void)send_packet(fd, lies ? encode(hello) : std::vector<std::byte>(20));
        connections.push_back(std::move(fd));
      }
    });
    auto options = member_of(uid, 2, 0);
    options.join_timeout = std::chrono::milliseconds(200);
    const auto heap = ShmHeap::create(options);
    stop = true;
    impostor.join();
    ASSERT_FALSE(heap);
    EXPECT_NE(heap.error().message.find("nobody came for PE 1"), std::string::npos);
    EXPECT_NE(heap.error().message.find(lies ? "listens for PE 1 says it starts at PE 0"
                                             : "not from a baton heap"),
              std::string::npos)
        << heap.error().message;
  }
}

}  // namespace
}  // namespace baton::shmem
