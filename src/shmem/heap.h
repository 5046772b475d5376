// The symmetric heap: memory of every engine (PE) that the others can write into, one-sided.
//
// Transport semantics (all implementations):
// - A *window* is the owner's permission to write into its memory: opened by the owner, named by
// (slot, tag) in the
//   address that the sender is given. A tag is never used twice.
// - put() copies into the memory of one incarnation of one PE, under a window. It fails, and writes
// nothing, when that
//   incarnation is gone or the window is closed. The source may be reused when it returns. Needs no
//   CPU of the owner.
// - signal() tells the owner that all earlier puts of this thread under the window are visible, and
// rings its doorbell.
//   After signalled() is true the owner sees all of the bytes.
// - close_window() lets no further put begin. One that is under way goes on: until quiet() the
// memory must not be used
//   for anything else (quarantine). quiet() becomes true when the put has ended, or its writer is
//   known dead (pidfd).
// - A peer that died is unmapped as soon as its pidfd says so; one that comes back is another
// incarnation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace baton::shmem {

/// One thing that both sides of a handoff must agree on, e.g. {"block size", "16"}.
struct Field {
  std::string name;
  std::string value;
};

/// What a member tells the others when it joins.
struct MemberInfo {
  std::string name;  ///< "engine 1 (decode)"
  std::vector<Field>
      descriptor;    ///< must be equal: a mismatch is refused, naming field and both values
  std::string info;  ///< opaque to the heap, <= 4 KiB
};

/// Another member as this one sees it now.
struct Peer {
  Pe first_pe;
  int n_pes = 0;
  uint64_t incarnation = 0;
  int pid = 0;
  MemberInfo member;
};

struct Window {
  int32_t slot = -1;
  uint64_t tag = 0;
};

/// What a sender writes to.
struct Target {
  Pe pe;
  uint64_t incarnation = 0;
  Window window;
};

/// Bytes that go to `offset` of the target PE's memory.
struct Piece {
  uint64_t offset = 0;
  std::span<const std::byte> bytes;
};

/// Thread-safe, but puts and signal of one window come from one thread.
class Heap {
 public:
  virtual ~Heap() = default;

  [[nodiscard]] virtual int n_pes() const = 0;    ///< of the world
  [[nodiscard]] virtual Pe first_pe() const = 0;  ///< of this member
  [[nodiscard]] virtual uint64_t incarnation() const = 0;
  /// This member's own memory on one of its PEs, zeroed at the start.
  [[nodiscard]] virtual std::span<std::byte> local(Pe pe) = 0;
  /// The live incarnation of the member that owns `pe`; nothing while there is none.
  [[nodiscard]] virtual std::optional<Peer> peer(Pe pe) const = 0;

  // The owner's side.
  /// kExhausted: all windows are open or not quiet yet.
  [[nodiscard]] virtual Result<Window> open_window() = 0;
  [[nodiscard]] virtual bool signalled(const Window& window) const = 0;
  /// Grows with every put that has ended.
  [[nodiscard]] virtual uint64_t progress(const Window& window) const = 0;
  virtual void close_window(const Window& window) = 0;
  [[nodiscard]] virtual bool quiet(const Window& window) const = 0;
  /// Gives a closed, quiet window back.
  virtual void free_window(const Window& window) = 0;
  /// `listener` is called on a thread of the heap after a doorbell, a join or a death. Set once,
  /// before use.
  virtual void set_listener(std::function<void()> listener) = 0;

  // The sender's side. kUnavailable: the incarnation is gone or the window closed;
  // kInvalidArgument: outside of the target's memory.
  [[nodiscard]] virtual Status put(const Target& target, std::span<const Piece> pieces) = 0;
  [[nodiscard]] virtual Status signal(const Target& target) = 0;
};

}  // namespace baton::shmem
