#include "shmem/shm_test_support.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "base/log.h"

namespace baton::shmem {
namespace {

// Before there are threads, as main does it; the library's own lazy start is more than TSan can
// follow.
[[maybe_unused]] const bool logging = init_logging("off", "text").has_value();

}  // namespace

std::string new_uid() {
  static std::atomic<int> n = 0;
  return fmt::format("test-{}-{}", getpid(), ++n);
}

ShmHeapOptions member_of(const std::string& uid, int npes, int pe_start) {
  ShmHeapOptions options;
  options.world = {.uid = uid, .npes = npes, .pe_start = pe_start, .join = Join::kFirst};
  options.member.name = fmt::format("engine {}", pe_start);
  options.bytes_per_pe = 65536;
  options.n_windows = 16;
  options.join_timeout = std::chrono::seconds(20);
  return options;
}

std::vector<Result<std::unique_ptr<Heap>>> join_all(std::vector<ShmHeapOptions> options) {
  std::vector<Result<std::unique_ptr<Heap>>> heaps(options.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < options.size(); ++i) {
    threads.emplace_back([&, i] { heaps[i] = ShmHeap::create(options[i]); });
  }
  for (auto& thread : threads) thread.join();
  return heaps;
}

std::vector<std::unique_ptr<Heap>> join_all_or_die(std::vector<ShmHeapOptions> options) {
  auto results = join_all(std::move(options));
  std::vector<std::unique_ptr<Heap>> heaps;
  for (auto& result : results) {
    BATON_CHECK(result, "{}", result.error().message);
    heaps.push_back(std::move(*result));
  }
  return heaps;
}

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

int count_heap_mappings() {
  std::ifstream maps("/proc/self/maps");
  int n = 0;
  for (std::string line; std::getline(maps, line);) n += line.find("baton-heap") != line.npos;
  return n;
}

int count_open_fds() {
  int n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++n;
  }
  return n;
}

Target target_at(const Heap& heap, int pe, const Window& window) {
  return {{pe}, heap.incarnation(), window};
}

Status put_bytes(Heap& from, const Target& to, int value, size_t n, size_t offset) {
  const std::vector<std::byte> bytes(n, static_cast<std::byte>(value));
  const Piece piece{offset, bytes};
  return from.put(to, {&piece, 1});
}

namespace {

bool write_value(int fd, uint64_t value) {
  return write(fd, &value, sizeof value) == ssize_t{sizeof value};
}
bool read_value(int fd, uint64_t& value) {
  return read(fd, &value, sizeof value) == ssize_t{sizeof value};
}

}  // namespace

void Child::Parent::tell(uint64_t value) const {
  if (!write_value(out_, value)) _exit(1);
}

uint64_t Child::Parent::hear() const {
  uint64_t value = 0;
  if (!read_value(in_, value)) _exit(1);
  return value;
}

Child::Child(const std::function<void(const Parent&)>& body) {
  int down[2], up[2];
  BATON_CHECK(pipe(down) == 0 && pipe(up) == 0);
  std::fflush(nullptr);
  pid_ = fork();
  BATON_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    close(down[1]);
    close(up[0]);
    body(Parent(down[0], up[1]));
    _exit(0);
  }
  close(down[0]);
  close(up[1]);
  in_ = up[0];
  out_ = down[1];
}

Child::~Child() {
  if (pid_ > 0) {
    kill(SIGKILL);
    reap();
  }
  close(in_);
  close(out_);
}

void Child::tell(uint64_t value) const { EXPECT_TRUE(write_value(out_, value)); }

uint64_t Child::hear() const {
  uint64_t value = 0;
  EXPECT_TRUE(read_value(in_, value)) << "the child is gone";
  return value;
}

void Child::kill(int signal) const { EXPECT_EQ(::kill(pid_, signal), 0); }

void Child::wait_stopped() const {
  siginfo_t info{};
  EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT), 0);
}

void Child::reap() {
  EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
  pid_ = -1;
}

int64_t Child::cpu_ns() const {
  clockid_t clock{};
  timespec time{};
  EXPECT_EQ(clock_getcpuclockid(pid_, &clock), 0);
  EXPECT_EQ(clock_gettime(clock, &time), 0);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace baton::shmem
