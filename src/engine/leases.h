// The blocks that this engine holds for prompts whose KV another engine writes into its memory.
//
// A lease is open from prepare-receive until its blocks belong to a request, or until it is
// released, cancelled or out of time. What a sender might still be writing into then goes to
// quarantine and is free only when the heap says that nobody does any more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/handoff.h"
#include "engine/scheduler.h"
#include "kv/block_cache.h"
#include "shmem/heap.h"

namespace baton::engine {

struct Lease {
  std::vector<TokenId> prompt;
  std::string label;
  int end = 0;                          ///< tokens [room.n_matched, end) are to be put
  Room room;                            ///< for all of the prompt
  std::optional<shmem::Window> window;  ///< none where nothing is to be put
  int64_t lease_ns = 0;
  int64_t expires_ns = 0;  ///< one lease after the last look that saw no newer progress
  int64_t looked_ns = 0;
  uint64_t progress = 0;
  std::optional<RequestId> request;  ///< that waits for the KV
};

/// Owner: ReceiveAction; used by the engine thread only. `heap` and `cache` outlive it.
class Leases {
 public:
  Leases(shmem::Heap& heap, kv::BlockCache& cache)
      : heap_(heap), cache_(cache), last_id_(heap.incarnation()) {}
  /// Closes every window. Blocks stay as they are: their owner goes as well.
  ~Leases();
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;

  /// Holds the room of `lease` from now on. kExhausted (and the room's blocks are free again) when
  /// there is no window for its sender.
  [[nodiscard]] Result<LeaseId> open(Lease lease, int64_t now_ns);
  /// nullptr if it isn't open (any more).
  [[nodiscard]] Lease* find(LeaseId id);
  [[nodiscard]] const std::map<LeaseId, Lease>& all() const { return leases_; }

  /// Whether everything was put and nobody writes any more: then take() gives all of the room.
  [[nodiscard]] bool arrived(Lease& lease);
  /// Ends a lease; its blocks are the caller's. What a sender may be writing into at this moment
  /// isn't among them.
  [[nodiscard]] Room take(LeaseId id);
  /// Ends a lease; its blocks are free, or will be.
  void close(LeaseId id);

  /// Looks at progress and quarantine; the leases whose time is over.
  [[nodiscard]] std::vector<LeaseId> poll(int64_t now_ns);
  /// When poll() has to be called again though nothing happens; none = never.
  [[nodiscard]] std::optional<int64_t> next_poll_ns(int64_t now_ns) const;

  [[nodiscard]] int n_open() const { return static_cast<int>(leases_.size()); }
  [[nodiscard]] int n_quarantined() const { return static_cast<int>(quarantine_.size()); }

 private:
  struct Quarantined {
    shmem::Window window;
    std::vector<BlockId> blocks;
  };

  void free(std::span<const BlockId> blocks);
  /// Closes the window; false if somebody writes under it, and it is the quarantine's with the
  /// blocks that are to be put, which are taken out of the room.
  bool shut(Lease& lease);
  void look(Lease& lease, int64_t now_ns);

  shmem::Heap& heap_;
  kv::BlockCache& cache_;
  std::map<LeaseId, Lease> leases_;
  std::vector<Quarantined> quarantine_;
  uint64_t last_id_;  ///< counts from the incarnation: ids of an earlier one mean nothing here
};

}  // namespace baton::engine
