// The token-level contract of a KV handoff between two engines (docs/protocol.md has its JSON): a
// receiver gives blocks and an address, a sender computes and puts, the receiver goes on. Ranges
// are half-open, in tokens of the prompt; begin and end are multiples of the block size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/token_request.h"

namespace baton {

/// Where a sender may put KV: blocks of one incarnation of one engine, through one window of its
/// segment.
struct KvAddress {
  Pe pe;
  uint64_t incarnation = 0;  ///< of the receiving engine; addresses of an earlier one are refused
  uint64_t layout_hash =
      0;  ///< kv::layout_hash of the receiver; the sender refuses another than its own
  int32_t window_slot = 0;
  uint64_t window_tag =
      0;  ///< generation tag: a window that was closed never opens again under the same tag
  std::vector<BlockId> blocks;  ///< [(end - matched) / 16], for tokens [matched, end) in order
};

/// prep_recv: make room for [matched, end) of this prompt, and hold it for `lease_ns`.
struct PrepareReceive {
  std::vector<TokenId> prompt;  ///< all of it (the prefix tree's keys depend on its length's class)
  int end = 0;                  ///< a multiple of 16, < prompt.size()
  bool match_prefix =
      true;  ///< false: prompt log probabilities are asked for, nothing may be skipped
  int64_t lease_ns =
      0;  ///< how long blocks are held without a sign of progress; 0 = the engine's default
  std::string label;
};
struct PreparedReceive {
  LeaseId lease;
  int n_matched =
      0;  ///< tokens [0, n_matched) lie in the receiver's cache; a multiple of 16, <= end
  KvAddress address;
  int64_t lease_ns = 0;
};

/// remote_send: compute [0, end) as far as this engine's own cache lacks it, put [begin, end),
/// signal.
struct RemoteSend {
  RequestId id;
  std::vector<TokenId> prompt;  ///< all of it
  int begin = 0;
  int end = 0;
  KvAddress to;
  std::optional<int>
      n_prompt_logprobs;  ///< set: log probabilities of prompt tokens [1, end] come back
  int priority = 0;
  int64_t arrival_ns = 0;   ///< at the first server, of the injected clock
  int64_t received_ns = 0;  ///< at this engine; 0 = when its thread takes it
  std::string label;
};
struct SentKv {
  int n_cached_tokens = 0;                    ///< of [0, end), found in the sender's own cache
  int64_t n_bytes = 0;                        ///< put
  int64_t put_ns = 0;                         ///< time spent in puts
  int64_t queue_ns = 0;                       ///< from arrival to the first chunk
  int64_t prefill_ns = 0;                     ///< from the first chunk to the signal
  std::vector<LogprobEntry> prompt_logprobs;  ///< [end + 1] if asked for; [0] has no logprob
};

}  // namespace baton
