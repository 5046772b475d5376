// The two benchmarks of `baton bench`. Each declares its flags and runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/offline.h"

namespace baton::cli {

/// What both take.
struct BenchTarget {
  std::string target;  ///< a model, or the URL of a server
  std::string json;    ///< file to write; empty = none
};

/// Flags as typed.
struct OfflineFlags {
  std::vector<int> prompts{512, 2048};
  std::vector<int> batches{1, 8, 16, 32};
  std::vector<int> contexts{512};
  int n_threads = 0;
  int n_rounds = 5;
  int max_batched_tokens = 512;
  std::string kernels;
};

/// Fills `out`; kInvalidArgument names the flag and its value.
[[nodiscard]] Result<bench::OfflineOptions> check(const OfflineFlags& flags);
[[nodiscard]] Result<int> run_offline_bench(const BenchTarget& target, const OfflineFlags& flags);

/// Writes the whole file or says what went wrong.
[[nodiscard]] Status write_file(const char* flag, const std::string& path, const std::string& text);

/// A bar on stderr, if that is a terminal: `done` of `total`, and more text. Redrawn in place;
/// total 0 wipes it.
void draw_progress(int64_t done, int64_t total, const std::string& more);

}  // namespace baton::cli
