// The state of a request inside the engine, and of each of its choices.
//
// A choice is a Sequence: the unit that is scheduled, holds blocks, is preempted and ends. The
// first choice computes the prompt, the others follow: they hold nothing until its last prompt
// token is computed, then share its blocks (copy on write of the partial last one) or, if the batch
// is full, wait with these. A send (the prefill engine's side of a handoff) is a request with one
// choice that computes the start of its prompt and samples nothing.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/handoff.h"
#include "base/token_request.h"
#include "kv/layout.h"
#include "linalg/kernels.h"
#include "shmem/heap.h"

namespace baton::engine {

struct Request;

enum class SequenceState {
  kFollowing,  ///< waits for the choice that computes the prompt
  kReceiving,  ///< its prompt's KV is on its way into the blocks of a lease
  kWaiting,    ///< in the queue, without blocks: never started, or preempted
  kReady,      ///< in the queue, with blocks: its KV came, or the batch was full when it was forked
  kRunning,    ///< holds blocks; takes part in steps
  kLost,       ///< its blocks are gone; it ends as given up when planning is done
  kFinished,   ///< holds nothing, gets no further events
};

/// One choice. Owner: its Request; mutated by Scheduler (state, table) and PostProcessor (tokens).
struct Sequence {
  Request* request = nullptr;
  int choice = 0;  ///< its number, as events and random numbers use it
  SequenceState state = SequenceState::kFollowing;
  std::vector<TokenId> tokens;  ///< prompt, then output; empty while following
  std::vector<BlockId> table;   ///< KV blocks; hold the KV of tokens [0, n_computed)
  int n_computed = 0;
  int n_committed_blocks = 0;  ///< of `table`, known to the prefix tree as far as we told it

  [[nodiscard]] int n_tokens() const { return static_cast<int>(tokens.size()); }
  [[nodiscard]] int n_left() const { return n_tokens() - n_computed; }
  [[nodiscard]] int n_output() const;
  /// Only the newest token is left to compute and it is our own: a decode step of one row.
  [[nodiscard]] bool decoding() const { return n_left() == 1 && n_output() > 0; }
};

/// What a remote_send adds to a request: where the KV of its prompt goes.
struct Send {
  int begin = 0;  ///< of the tokens to put; they end with those to compute
  int end = 0;
  shmem::Target target;
  kv::KvLayout layout;          ///< the receiver's
  std::vector<BlockId> blocks;  ///< the receiver's [(end - begin) / 16], for [begin, end)
  std::function<void(Result<SentKv>)> done;

  int n_put = 0;  ///< tokens at the start whose KV needs no putting any more
  SentKv sent;
  std::optional<Error> error;  ///< the first put that failed: nothing more is put
};

/// One request: what was asked, its choices, and what goes out after this step.
/// Owner: the Scheduler's table, from add() until its last event was emitted.
struct Request {
  TokenRequest spec;
  UpdateSink sink;
  uint64_t order = 0;  ///< of submission; breaks ties between equal priorities and arrivals
  std::vector<std::unique_ptr<Sequence>> choices;
  std::unique_ptr<Send> send;  ///< null: an ordinary request, which generates

  /// Positions below run in the prefill class, others in the decode class. Set at the first
  /// admission.
  std::optional<int> prefill_end;
  int n_cached_tokens = 0;                    ///< matched at the first admission
  std::vector<LogprobEntry> prompt_logprobs;  ///< [n_prompt] if asked for
  bool prompt_done = false;                   ///< the last prompt token was computed once
  bool prompt_reported = false;

  int64_t submitted_ns = 0;
  std::optional<int64_t> admitted_ns;  ///< when its first chunk was planned
  std::optional<int64_t> first_token_ns;

  RequestUpdate update;  ///< collected in this step
  bool dirty = false;    ///< `update` waits to be sent

  [[nodiscard]] int n_prompt() const { return static_cast<int>(spec.prompt.size()); }
  /// What logs and the trace call it.
  [[nodiscard]] std::string label() const {
    return spec.label.empty() ? fmt::format("{:016x}", spec.id.value) : spec.label;
  }
  /// Prompt logprobs still need the logits of every prompt position: no prefix may be skipped.
  [[nodiscard]] bool needs_prompt_logits() const {
    return spec.n_prompt_logprobs.has_value() && !prompt_done;
  }
  [[nodiscard]] bool finished() const {
    for (const auto& sequence : choices) {
      if (sequence->state != SequenceState::kFinished) return false;
    }
    return true;
  }
};

inline int Sequence::n_output() const {
  return tokens.empty() ? 0 : n_tokens() - request->n_prompt();
}

/// Who goes first: lower priority value, then earlier arrival, then order of submission.
struct RunsBefore {
  static auto key(const Sequence& s) {
    const Request& r = *s.request;
    return std::make_tuple(r.spec.priority, r.spec.arrival_ns, r.order, s.choice);
  }
  bool operator()(const Sequence* a, const Sequence* b) const { return key(*a) < key(*b); }
};

/// Blocks that hold the KV of `n_tokens` tokens.
[[nodiscard]] constexpr int blocks_for(int n_tokens) {
  return (n_tokens + kv::kBlockTokens - 1) / kv::kBlockTokens;
}

/// The kernel class of the next position to compute, and where its run ends (exclusive).
struct ClassRun {
  linalg::KernelClass kernel_class = linalg::KernelClass::kDecode;
  int end = 0;
};
[[nodiscard]] inline ClassRun next_class_run(const Sequence& s) {
  const int prefill_end = s.request->prefill_end.value_or(0);
  if (s.n_computed < prefill_end) return {linalg::KernelClass::kPrefill, prefill_end};
  return {linalg::KernelClass::kDecode, s.n_tokens()};
}

}  // namespace baton::engine
