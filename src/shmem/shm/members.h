// Who is in the world now, and who may still write into this member's memory.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "shmem/heap.h"
#include "shmem/shm/fd.h"
#include "shmem/shm/segment.h"
#include "shmem/shm/wire.h"

namespace baton::shmem {

/// A member as this one can write to it. Immutable; unmapped with its last reference, so a put that
/// is under way while the member leaves ends safely.
struct Member {
  Hello hello;
  int pid = 0;
  std::shared_ptr<const Segment> segment;
  std::shared_ptr<const Fd> doorbell;
  uint64_t ticket = 0;  ///< what this process calls itself in that segment's window slots
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

/// Names for those that were given this member's memory, valid until their process is dead.
/// Thread-safe.
class Tickets {
 public:
  [[nodiscard]] uint64_t issue();
  void retire(uint64_t ticket);
  /// May its holder still write?
  [[nodiscard]] bool live(uint64_t ticket) const;

 private:
  mutable std::mutex mutex_;
  uint64_t last_ = 0;
  std::unordered_set<uint64_t> live_;
};

}  // namespace baton::shmem
