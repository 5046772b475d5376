// Public request traces: when requests came and how long they were.
//
// Mooncake (FAST '25), a JSON object a line: {"timestamp": ms, "input_length": tokens,
// "output_length": tokens, "hash_ids": [ids of the prompt's blocks of 512 tokens]}. Equal ids are
// equal blocks behind equal prefixes.
// Azure LLM inference, CSV: TIMESTAMP,ContextTokens,GeneratedTokens with timestamps as
// "2023-11-16 18:17:03.9799600", with or without "+00:00".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace baton::bench {

struct TraceRow {
  double time_s = 0;  ///< since the trace's first request
  int n_prompt = 0;   ///< tokens
  int n_output = 0;
  std::vector<int64_t> hash_ids;  ///< of blocks of kTraceBlockTokens; empty = nothing is shared
};

inline constexpr int kTraceBlockTokens = 512;

/// Rows by rising time, at least one. Which format it is shows in the first line. Errors
/// (kCorrupt) are "NAME:LINE: what is wrong"; `most_rows` > 0: the rest isn't read.
[[nodiscard]] Result<std::vector<TraceRow>> parse_trace(std::string_view text,
                                                        const std::string& name,
                                                        size_t most_rows = 0);

/// The same of a file, compressed with gzip or not. kNotFound, kIo or kCorrupt; at most 1 GiB of
/// text.
[[nodiscard]] Result<std::vector<TraceRow>> read_trace(const std::string& path,
                                                       size_t most_rows = 0);

}  // namespace baton::bench
