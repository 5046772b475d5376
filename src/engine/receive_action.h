// The receiving side of a handoff: makes room, waits for signals, hands what came to the scheduler.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/action.h"
#include "engine/leases.h"
#include "engine/options.h"

namespace baton::engine {

/// Nothing of a leased prompt is matchable, or in anyone's block table, before its sender has
/// signalled. Owner: EngineCore; used by the engine thread only, except check().
class ReceiveAction final : public Action {
 public:
  struct Deps {
    shmem::Heap* heap = nullptr;  ///< null: outside of any world, everything is refused
    const Clock* clock = nullptr;
    kv::BlockCache* cache = nullptr;
    Scheduler* scheduler = nullptr;
  };
  ReceiveAction(const EngineOptions& options, const EngineLimits& limits, const Deps& deps);

  /// Whether it could ever be granted. Thread-safe.
  [[nodiscard]] Status check(const PrepareReceive& request) const;
  /// Makes room and a lease on it; `request` has passed check(). kExhausted (retryable): not now.
  [[nodiscard]] Result<PreparedReceive> prepare(const PrepareReceive& request);
  /// Ends an open lease that no request has taken over; others are left alone.
  void release(LeaseId lease);
  /// Lets a request that the scheduler has (in the state receiving) take over its lease. kNotFound:
  /// there is none (any more); kInvalidArgument: it is for something else, or taken.
  [[nodiscard]] Status start(Request& request);
  /// Closes the leases whose requests have ended.
  void drop_orphans();
  void close_all();

  /// Delivers what has come, gives up what won't.
  void plan(Scheduler& scheduler, Batch& batch) override;
  /// When plan() has to be called though no message comes.
  [[nodiscard]] std::optional<int64_t> next_poll_ns() const;

  [[nodiscard]] int n_open() const { return leases_ ? leases_->n_open() : 0; }
  [[nodiscard]] int n_quarantined() const { return leases_ ? leases_->n_quarantined() : 0; }
  [[nodiscard]] std::vector<LeaseId> open_ids() const;

 private:
  [[nodiscard]] Sequence* receiver(const Lease& lease) const;
  void deliver(LeaseId id, Sequence& receiver, int begin);

  EngineOptions options_;
  EngineLimits limits_;
  Deps deps_;
  std::optional<Leases> leases_;  ///< none without a heap
};

}  // namespace baton::engine
