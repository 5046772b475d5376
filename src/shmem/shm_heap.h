// The symmetric heap of one host: shared memory between the processes of one user.
//
// Every member's memory is a memfd that it gives to the others over an abstract Unix socket, so
// nothing has a name that could leak; what a dead one leaves behind is unmapped when the kernel
// reports its end. Parts, bottom to top: fd.h, segment.h (the memory and the protocol of its
// windows), windows.h (both sides of a window), wire.h and endpoint.h (what is said when two meet),
// handshake.h, members.h, heap_thread.h, warmer.h; this file puts them together.
//
// Whom it trusts: nobody of another user gets in; a connection that sends nonsense is dropped
// without effect. A process of the same user that speaks the protocol is believed (it could attach
// a debugger as well): it can write into the memory that it is given, and a wrong configuration in
// a first join makes that join fail.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "shmem/heap.h"
#include "shmem/world.h"

namespace baton::shmem {

struct ShmHeapOptions {
  WorldConfig world;
  int n_pes = 1;  ///< of this member
  MemberInfo member;
  size_t bytes_per_pe = 0;
  int n_windows = 1024;  ///< that may be open, or closed and not quiet yet, at a time
  std::chrono::milliseconds join_timeout{60'000};
  uint64_t incarnation = 0;  ///< 0: the time of day in ns
  /// Make all pages exist in the background, this member's own from the start and another's from
  /// the first put into it on. Else they come into being as they are written, several times slower.
  bool warm = false;
  /// How put() copies one piece; empty: the fastest way. Tests inject one that waits in the middle.
  std::function<void(std::byte* to, std::span<const std::byte> from)> copy;
};

/// See Heap. Thread-safe.
///
/// The listener is called once after it is set, too; set_listener({}) returns when no call is under
/// way any more. Destroy the heap when none of its puts is under way; the others see that it has
/// left.
class ShmHeap : public Heap {
 public:
  /// Joins the world. kInvalidArgument: a bad place, or members that don't fit together (names the
  /// field, both values and both members); kUnavailable: time-out, names the PEs that nobody came
  /// for; kIo.
  [[nodiscard]] static Result<std::unique_ptr<Heap>> create(ShmHeapOptions options);
};

}  // namespace baton::shmem
