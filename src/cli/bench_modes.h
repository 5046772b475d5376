// The two benchmarks of `baton bench`. Each declares its flags and runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/load.h"
#include "bench/offline.h"
#include "bench/prompts.h"
#include "bench/summary.h"
#include "bench/workload.h"

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
  std::string prefill_activations = "int16";
};

/// Fills `out`; kInvalidArgument names the flag and its value.
[[nodiscard]] Result<bench::OfflineOptions> check(const OfflineFlags& flags);
[[nodiscard]] Result<int> run_offline_bench(const BenchTarget& target, const OfflineFlags& flags);

/// Flags as typed.
struct OnlineFlags {
  double rate = 0;
  std::string arrival = "poisson";
  int concurrency = 0;
  int n_requests = 100;
  std::string prompt_tokens = "512";
  std::string output_tokens = "128";
  int shared_prefix = 0;
  std::string trace;
  double speed = 1;
  double length_scale = 1;
  int max_prompt_tokens = 0;
  int max_output_tokens = 0;
  int max_model_len = 0;
  uint64_t seed = 0;
  bool chat = false;
  bool token_ids = false;
  std::string id_range = "1000-20000";
  bool stop_at_eos = false;
  double temperature = 0;
  std::string model;
  std::string api_key;
  std::string slo;
  std::string timeout = "10m";
  int n_warm_up = 1;
  std::string html;
  bool n_requests_given = false;
};

/// Flags understood.
struct OnlineSettings {
  std::string origin;
  bench::SyntheticOptions synthetic;  ///< without a trace
  std::string trace;
  bench::ReplayOptions replay;
  size_t most_rows = 0;  ///< of the trace; 0 = all
  bench::Fit fit;
  bench::PromptOptions prompt;
  bench::LoadOptions load;
  bench::Slo slo;
};

/// kInvalidArgument names the flag and its value.
[[nodiscard]] Result<OnlineSettings> check(const BenchTarget& target, const OnlineFlags& flags);
[[nodiscard]] Result<int> run_online_bench(const BenchTarget& target, const OnlineFlags& flags);

/// Whether `path` (empty = none is wanted) can be written, so that nobody measures in vain.
[[nodiscard]] Status check_writable(const char* flag, const std::string& path);
/// Writes the whole file or says what went wrong.
[[nodiscard]] Status write_file(const char* flag, const std::string& path, const std::string& text);

/// A bar on stderr, if that is a terminal: `done` of `total`, and more text. Redrawn in place;
/// total 0 wipes it.
void draw_progress(int64_t done, int64_t total, const std::string& more);

}  // namespace baton::cli
