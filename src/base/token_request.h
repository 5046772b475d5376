// The token-level contract: what a frontend asks of a Backend and what comes back. Tokens only;
// text, templates and stop strings live above it (src/frontend), batching and KV below it
// (src/engine).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace baton {

/// How to choose the next token. Order, as in vLLM: min_tokens' bans, logit_bias, penalties
/// (repetition over prompt and output; frequency and presence over output), temperature, min_p,
/// top_k, top_p.
struct SamplingParams {
  float temperature = 1.0F;  ///< 0 (below 1e-5) = greedy; the lowest id wins a tie
  float top_p = 1.0F;        ///< (0, 1]
  int top_k = 0;             ///< 0 = off
  float min_p = 0.0F;        ///< [0, 1]
  uint64_t seed = 0;         ///< random numbers are a function of (seed, choice, position)
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  float repetition_penalty = 1.0F;
  std::vector<std::pair<TokenId, float>> logit_bias{};
};

/// One prompt and how to go on from it. Immutable once submitted; every value already checked.
struct TokenRequest {
  RequestId id;
  std::vector<TokenId> prompt;  ///< never empty
  SamplingParams sampling;
  int n_choices = 1;              ///< independent continuations of the one prompt
  int max_tokens = 16;            ///< per choice; 0 only together with prompt_logprobs
  int min_tokens = 0;             ///< stop ids can't be sampled before so many tokens
  std::vector<TokenId> eos_ids;   ///< the model's; they end a choice unless ignore_eos
  std::vector<TokenId> stop_ids;  ///< the client's; they always end a choice
  bool ignore_eos = false;
  std::optional<int> n_logprobs;         ///< set: report each token's logprob and the best n
  std::optional<int> n_prompt_logprobs;  ///< set: report them for the prompt too (echo)
  int priority = 0;                      ///< lower runs first, as in vLLM
  int64_t arrival_ns = 0;
  std::string label;  ///< what the client, logs and the trace call it, e.g. "cmpl-…"

  /// The prompt's KV comes through a lease of this engine: [0, begin) is there or on its way.
  struct LeasedPrefix {
    LeaseId lease;
    int begin = 0;  ///< the lease's end (a sender delivers), or its n_matched (computed here)
  };
  std::optional<LeasedPrefix> leased;
  /// Tokens that the one choice (n_choices == 1) generated before it moved here from another
  /// engine: its output like those to come, but no events are sent for them, and no prompt log
  /// probabilities.
  std::vector<TokenId> output;
  /// Choices are numbered [first_choice, first_choice + n_choices); events and random numbers use
  /// the number.
  int first_choice = 0;
};

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0.0F;  ///< natural log, of the model itself: before temperature, penalties, bias
};

/// A token's own log probability and the best alternatives, best first.
struct LogprobEntry {
  float logprob = 0.0F;
  std::vector<TokenLogprob> top;
};

enum class FinishReason {
  kStop,
  kLength,
  kCancelled,
  kError,
  /// Between engine and router only: given up without the request's fault (preempted, its KV never
  /// came); it may go on elsewhere from what it has generated. TokenEvent::error says why.
  kGivenUp,
};

/// What happened to one choice in one step. Events of a choice arrive in order.
struct TokenEvent {
  int choice = 0;
  std::vector<TokenId> tokens;            ///< newly generated, the EOS or stop token included
  std::vector<LogprobEntry> logprobs;     ///< one per token if asked for, else empty
  std::optional<FinishReason> finish;     ///< set on the last event of the choice
  std::optional<TokenId> stop_id;         ///< the client's stop id that ended it, if one did
  std::string error;                      ///< with kError: what the client is told
  ErrorCode code = ErrorCode::kInternal;  ///< with kError: which HTTP status goes with it
};

/// Sent once, with or before the first TokenEvent of a request.
struct PromptInfo {
  int n_prompt_tokens = 0;
  int n_cached_tokens = 0;
  std::vector<LogprobEntry>
      prompt_logprobs;  ///< [n_prompt_tokens] if asked for; [0] has no logprob
};

/// Everything of one request out of one step.
struct RequestUpdate {
  RequestId id;
  std::optional<PromptInfo> prompt;
  std::vector<TokenEvent> events;
};

/// The end of a request that never ran: each of its choices fails with `message`.
[[nodiscard]] inline RequestUpdate failed_update(RequestId id, int first_choice, int n_choices,
                                                 const std::string& message) {
  RequestUpdate update;
  update.id = id;
  update.prompt = PromptInfo{};
  for (int i = 0; i < n_choices; ++i) {
    TokenEvent event;
    event.choice = first_choice + i;
    event.finish = FinishReason::kError;
    event.error = message;
    update.events.push_back(std::move(event));
  }
  return update;
}

/// Called on the backend's thread; must not block and must not call back into the backend.
using UpdateSink = std::function<void(RequestUpdate)>;

}  // namespace baton
