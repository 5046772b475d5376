// A symmetric world within one process, on plain memory: for tests of what uses a heap (the
// engine). Deterministic: nothing happens but in the calls of the test; no thread, no socket.
#pragma once

#include <cstddef>
#include <memory>

#include "shmem/heap.h"

namespace baton::testing {

struct FakeMember {
  Pe first_pe;
  int n_pes = 1;
  size_t bytes_per_pe = 0;
  shmem::MemberInfo member{};
  int n_windows = 64;
};

/// Makes heaps that see each other. Thread-safe; the heaps may outlive it.
///
/// Listeners are called on the thread whose call caused it (signal, join, kill), with no lock held.
class FakeWorld {
 public:
  explicit FakeWorld(int n_pes);

  /// A new member, with a new incarnation; the PEs must be free. Destroying the heap is leaving.
  [[nodiscard]] std::unique_ptr<shmem::Heap> join(const FakeMember& member);

  /// The member of `pe` dies: the others lose it, its own puts are refused, and the windows that it
  /// was writing under are quiet (what was left of such a put is never written).
  void kill(Pe pe);

  /// The next put into `pe`'s memory returns with only the first half of its bytes written. It is
  /// under way (its window isn't quiet) until finish_puts(), or the death of its writer.
  void hold_next_put(Pe pe);
  /// Writes the rest of all held puts, whatever has become of their windows; how many there were.
  int finish_puts();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace baton::testing
