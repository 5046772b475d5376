// Who is in the world now.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "shmem/heap.h"
#include "shmem/shm/fd.h"
#include "shmem/shm/segment.h"
#include "shmem/shm/wire.h"

namespace baton::shmem {

/// A ticket is what a process calls itself in a segment's window slots: the owner gives each
/// process that it gives its memory one of its own, and never the same to two. This one belongs to
/// the owner.
inline constexpr uint64_t kOwnTicket = 1;

/// A member as this one can write to it. Immutable; unmapped with its last reference, so a put that
/// is under way while the member leaves ends safely.
struct Member {
  Hello hello;
  int pid = 0;
  std::shared_ptr<const Segment> segment;
  std::shared_ptr<const Fd> doorbell;
  uint64_t ticket = 0;  ///< of this process in that segment
};

/// The living members, this one included, by PE. Thread-safe.
class MemberTable {
 public:
  explicit MemberTable(int npes) : npes_(npes) {}

  [[nodiscard]] std::shared_ptr<const Member> find(Pe pe) const;
  [[nodiscard]] std::vector<std::shared_ptr<const Member>> all() const;
  void add(std::shared_ptr<const Member> member);
  void remove(const std::shared_ptr<const Member>& member);
  /// "PE 1-2, PE 5": those without a member, `but_for` those of some that have left; empty = none.
  [[nodiscard]] std::string missing(std::span<const Hello> but_for = {}) const;

 private:
  [[nodiscard]] std::shared_ptr<const Member> find_locked(int pe) const;

  const int npes_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const Member>> members_;
};

}  // namespace baton::shmem
