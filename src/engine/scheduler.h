// Who runs, who waits, who holds which blocks. Every change of a sequence's state or block table
// happens here, as: compute a plan (const), then one apply() that can't fail half-way.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/role.h"
#include "engine/kv_memory.h"
#include "engine/sequence.h"
#include "kv/block_cache.h"

namespace baton::engine {

struct SchedulerOptions {
  Role role = Role::kBoth;
  int max_batch = 64;
  int prefill_min_tokens = 128;
  bool exact_prefix = false;
};

/// What admitting one of the queue would take. `fits` = apply() may be called now.
struct Admission {
  Sequence* sequence = nullptr;
  bool fits = false;
  int n_matchable = 0;   ///< tokens at the start whose prefix may be taken from the tree
  int n_matched = 0;     ///< tokens the tree has
  int n_new_blocks = 0;  ///< to allocate behind them
};

/// Room for a prompt of which another engine computes the start.
struct Room {
  std::vector<BlockId> table;  ///< for all of the prompt
  int n_matched = 0;           ///< tokens whose KV is there
};

/// A sequence that had to give up its blocks for good, and why.
struct Loss {
  Sequence* sequence = nullptr;
  std::string why;
  ErrorCode code = ErrorCode::kUnavailable;  ///< kExhausted: its blocks were taken for others
};

/// Requests that have ended and what left the queue, since the last look.
struct SchedulerCounters {
  int64_t n_left_queue = 0;  ///< requests that were admitted first, or ended while waiting
  int64_t n_preemptions = 0;
  int64_t n_prefix_queries = 0;  ///< tokens
  int64_t n_prefix_hits = 0;     ///< tokens
};

/// Owner of all requests of an engine. Owned by EngineCore, used by the engine thread only.
/// Invariants: `running` and the queues are sorted by RunsBefore; only running and ready sequences
/// hold blocks.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, kv::BlockCache& cache, KvMemory& memory);

  /// Takes a request; its first choice waits (for a place, or if its prompt is leased for
  /// deliver()), the others follow it.
  void add(std::unique_ptr<Request> request);
  [[nodiscard]] Request* find(RequestId id) const;
  /// Forgets a finished request.
  void erase(RequestId id);
  [[nodiscard]] std::vector<RequestId> ids() const;

  [[nodiscard]] const std::vector<Sequence*>& running() const { return running_; }
  [[nodiscard]] const std::set<Sequence*, RunsBefore>& waiting() const { return waiting_; }
  [[nodiscard]] size_t n_requests() const { return requests_.size(); }
  [[nodiscard]] bool has_work() const {
    return !running_.empty() || !waiting_.empty() || !ready_.empty();
  }
  [[nodiscard]] const SchedulerCounters& counters() const { return counters_; }

  /// The head of the queue, if the batch has room and its blocks fit. Where they don't, one that
  /// has its blocks already may go before it: nobody gets these before it has run.
  [[nodiscard]] Admission plan_admission() const;
  void apply(const Admission& admission);

  /// Blocks for `request`, while enough are left for the head of the queue and, one each, for what
  /// runs or soon will: `n_leases` and the sequences with blocks.
  [[nodiscard]] std::optional<Room> make_room(const PrepareReceive& request, int n_leases);
  /// The prompt of a receiving sequence has come (or is to be computed here): tokens [0,
  /// n_computed) lie in the room that was made for it, and become matchable. It waits for a place,
  /// with its blocks. `end`: of the leased part.
  void deliver(Sequence& receiver, Room room, int n_computed, int end);

  /// Makes the block that the next token's KV goes into writable: a new one where the table ends, a
  /// copy where others hold it too. False (and nothing changed) when no block is left.
  [[nodiscard]] bool grow(Sequence& sequence);
  /// Who has to give up blocks first.
  [[nodiscard]] Sequence* worst() const;
  /// Takes all blocks from a sequence and puts it back into the queue, or, where it can't be
  /// computed again with the same bits (or its router knows a better place), loses it.
  void preempt(Sequence& sequence);
  /// False if there is no ready sequence.
  bool preempt_worst_ready();
  /// Takes everything from a sequence and from those that follow it; take_lost() tells of them.
  void lose(Sequence& sequence, const std::string& why, ErrorCode code = ErrorCode::kUnavailable);
  /// To be ended by the caller, at once.
  [[nodiscard]] std::vector<Loss> take_lost() { return std::exchange(lost_, {}); }
  /// After the last prompt token of `leader`: its followers share its blocks and run, or wait.
  void fork_followers(Sequence& leader);
  /// Ends a sequence in any state: blocks and place are free at once. Where it was computing the
  /// prompt for others, the next of these takes over what was done.
  void finish(Sequence& sequence);
  /// Makes what is computed matchable, as far as the rules of exact_prefix allow it.
  void commit(Sequence& sequence);
  /// Forgets everything cached that nobody holds (it may be damaged).
  void clear_cached() { cache_.clear_cached(); }

 private:
  [[nodiscard]] bool prefill_class(const Request& request) const;
  [[nodiscard]] int prefill_end(const Request& request) const;
  [[nodiscard]] int matchable_tokens(const Sequence& sequence) const;
  [[nodiscard]] std::span<const TokenId> tree_keys(const Sequence& sequence, int n) const;
  [[nodiscard]] bool recomputable(const Request& request) const;
  [[nodiscard]] Admission plan(Sequence& sequence) const;
  /// Into the container of a state, and out of that of its own.
  void enter(Sequence& sequence, SequenceState state);
  void leave(Sequence& sequence);
  void drop_blocks(Sequence& sequence);
  void hand_over(Sequence& from, Sequence& to);

  SchedulerOptions options_;
  kv::BlockCache& cache_;
  KvMemory& memory_;
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;
  std::vector<Sequence*> running_;
  std::set<Sequence*, RunsBefore> waiting_;
  std::set<Sequence*, RunsBefore> ready_;
  std::vector<Loss> lost_;
  mutable std::vector<TokenId> keys_;  ///< scratch of tree_keys()
  SchedulerCounters counters_;
  uint64_t n_added_ = 0;
};

}  // namespace baton::engine
