// A heap whose puts and signals go wrong by a script: delayed, held until the test says so,
// reordered, lost, failed, or the end of their process. A decorator: works around every Heap.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "shmem/heap.h"

namespace baton::testing {

/// What the script is asked about.
struct HeapOperation {
  enum class Kind { kPut, kSignal };
  Kind kind = Kind::kPut;
  int64_t number = 0;  ///< of all puts and signals of this heap, from 0
  shmem::Target target;
  size_t n_bytes = 0;
};

/// What happens to one operation.
struct HeapFault {
  enum class Kind {
    kPass,
    kFail,   ///< kUnavailable; nothing is done
    kDrop,   ///< says that it worked; nothing is done
    kDelay,  ///< says that it worked; done after `delay`, on a thread
    kHold,   ///< says that it worked; done when released
    kKill,   ///< calls `kill`; then as kFail, should that return
  };
  Kind kind = Kind::kPass;
  std::chrono::nanoseconds delay{0};
  /// May be done before earlier operations under the same window. Otherwise it waits for those that
  /// are delayed or held, so that a signal never comes before its bytes.
  bool overtake = false;
};

/// Thread-safe. What still waits at the end is never done.
///
/// A late operation has its own copy of the bytes and is done through the inner heap, which refuses
/// it when its window is closed by then. (For a put that is caught in the middle of its copy:
/// ShmHeapOptions::copy, FakeWorld::hold_next_put.)
class FaultyHeap final : public shmem::Heap {
 public:
  using Script = std::function<HeapFault(const HeapOperation&)>;

  /// `inner` outlives it. `kill` ends what the script kills: a process, a member of a FakeWorld.
  FaultyHeap(shmem::Heap& inner, Script script, std::function<void()> kill = {});
  ~FaultyHeap() override;

  /// Replaces the script, for operations from now on.
  void set_script(Script script);
  /// Operations that are delayed or held, in the order they were asked for.
  [[nodiscard]] int n_waiting() const;
  /// Does the waiting operation number `index` now, whatever it should wait for; what the inner
  /// heap said.
  Status release(int index);
  /// Does all waiting ones now, in order; how many the inner heap refused.
  int release_all();
  /// Does them in the reverse order.
  int release_all_reversed();

  [[nodiscard]] int n_pes() const override { return inner_.n_pes(); }
  [[nodiscard]] Pe first_pe() const override { return inner_.first_pe(); }
  [[nodiscard]] uint64_t incarnation() const override { return inner_.incarnation(); }
  [[nodiscard]] std::span<std::byte> local(Pe pe) override { return inner_.local(pe); }
  [[nodiscard]] std::optional<shmem::Peer> peer(Pe pe) const override { return inner_.peer(pe); }
  [[nodiscard]] Result<shmem::Window> open_window() override { return inner_.open_window(); }
  [[nodiscard]] bool signalled(const shmem::Window& window) const override {
    return inner_.signalled(window);
  }
  [[nodiscard]] uint64_t progress(const shmem::Window& window) const override {
    return inner_.progress(window);
  }
  void close_window(const shmem::Window& window) override { inner_.close_window(window); }
  [[nodiscard]] bool quiet(const shmem::Window& window) const override {
    return inner_.quiet(window);
  }
  void free_window(const shmem::Window& window) override { inner_.free_window(window); }
  void set_listener(std::function<void()> listener) override {
    inner_.set_listener(std::move(listener));
  }
  [[nodiscard]] Status put(const shmem::Target& target,
                           std::span<const shmem::Piece> pieces) override;
  [[nodiscard]] Status signal(const shmem::Target& target) override;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Waiting {
    HeapOperation operation;
    std::vector<std::vector<std::byte>> bytes;  ///< of `pieces`
    std::vector<shmem::Piece> pieces;
    std::optional<Time> due;  ///< not set: held
    bool overtake = false;
    bool being_done = false;  ///< keeps its place in the order until it is done
  };
  using Place = std::list<Waiting>::iterator;

  [[nodiscard]] Status run(const HeapOperation& operation, std::span<const shmem::Piece> pieces);
  [[nodiscard]] Status apply(const HeapOperation& operation, std::span<const shmem::Piece> pieces);
  [[nodiscard]] bool waits_behind(Place place) const;
  [[nodiscard]] Place find_due(Time now);
  [[nodiscard]] Status finish(std::unique_lock<std::mutex>& lock, Place place);
  void deliver();

  shmem::Heap& inner_;
  const std::function<void()> kill_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Script script_;
  int64_t n_operations_ = 0;
  std::list<Waiting> waiting_;
  bool stop_ = false;
  std::thread thread_;  ///< does what is due
};

}  // namespace baton::testing
