// What the tests of the shared-memory heap have in common: worlds in this process and in forked
// ones.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shmem/shm_heap.h"

namespace baton::shmem {

/// A uid that no other test uses.
[[nodiscard]] std::string new_uid();

/// One PE with 64 KiB, named "engine K", from `pe_start` on.
[[nodiscard]] ShmHeapOptions member_of(const std::string& uid, int npes, int pe_start);

/// Joins all at once, each on a thread of its own.
[[nodiscard]] std::vector<Result<std::unique_ptr<Heap>>> join_all(
    std::vector<ShmHeapOptions> options);
/// As above; aborts the test when one fails.
[[nodiscard]] std::vector<std::unique_ptr<Heap>> join_all_or_die(
    std::vector<ShmHeapOptions> options);

/// Polls until it holds; false after 20 s.
[[nodiscard]] bool eventually(const std::function<bool()>& condition);

/// Mappings of heaps in this process, as /proc/self/maps has them.
[[nodiscard]] int count_heap_mappings();
[[nodiscard]] int count_open_fds();

/// The address of a window in `heap`.
[[nodiscard]] Target target_at(const Heap& heap, int pe, const Window& window);
/// Puts n bytes of `value` at `offset`.
[[nodiscard]] Status put_bytes(Heap& from, const Target& to, int value, size_t n,
                               size_t offset = 0);

/// A forked process that runs `body`, with a pipe in each direction. Killed and reaped at the end.
/// Fork while this process has one thread only.
class Child {
 public:
  /// The child's end.
  class Parent {
   public:
    Parent(int in, int out) : in_(in), out_(out) {}
    void tell(uint64_t value) const;
    [[nodiscard]] uint64_t hear() const;  ///< ends the process when the parent is gone

   private:
    int in_;
    int out_;
  };

  explicit Child(const std::function<void(const Parent&)>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void tell(uint64_t value) const;
  [[nodiscard]] uint64_t hear() const;  ///< fails the test when the child is gone
  void kill(int signal) const;
  /// Waits until it is stopped (SIGSTOP) or gone.
  void wait_stopped() const;
  void reap();
  /// CPU time of all of its threads.
  [[nodiscard]] int64_t cpu_ns() const;

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
};

}  // namespace baton::shmem
