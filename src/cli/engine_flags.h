// The flags that say how an engine computes: typed for the one of `baton engine`, or for all of
// `baton serve`, which hands them on.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/role.h"

namespace CLI {
class App;
}

namespace baton::cli {

/// As typed; the texts are understood by check().
struct EngineFlags {
  std::string model;
  std::vector<std::string> served_model_names;
  int context = 0;
  int max_batch = 64;
  int max_batched_tokens = 512;
  int mixed_prefill_tokens = 0;  ///< 0 = by the kernels
  std::string kv_memory = "2GiB";
  std::string remote_prefill_min_tokens = "auto";
  std::string kv_dtype = "auto";
  std::string prefill_activations = "int16";
  bool exact_prefix = false;
  std::string packed_cache = "on";
  std::string lease = "30s";
  std::string join_timeout = "60s";
  std::string cpus;  ///< empty = all that the process may use
  std::string trace;
  std::string log_level = "info";
  std::string log_format = "text";
};

/// Understood.
struct EngineSettings {
  uint64_t kv_bytes = 0;
  int prefill_min_tokens = 0;
  std::chrono::milliseconds lease{};
  std::chrono::milliseconds join_timeout{};
  std::vector<std::vector<int>> cores;  ///< the CPUs to use, those of one core together; some
};

/// All of them but the model, which is a flag or not.
void add_engine_flags(CLI::App& command, EngineFlags& flags);
/// Errors name the flag, its value and what would be right.
[[nodiscard]] Result<EngineSettings> check(const EngineFlags& flags);

/// What one engine of `serve` is told beyond the flags.
struct EnginePlace {
  std::string name;  ///< "engine 1 (decode)"
  Role role = Role::kBoth;
  std::vector<int> cpus;
  std::string drain_timeout;
  int ready_fd = -1;
  int lifeline_fd = -1;
};
/// The command line, "engine" first, of an engine process with these flags.
[[nodiscard]] std::vector<std::string> engine_arguments(const EngineFlags& flags,
                                                        const EnginePlace& place);

[[nodiscard]] Result<Role> parse_role(const std::string& text);
/// Used by the router's flags too.
[[nodiscard]] Result<int> parse_min_tokens(const std::string& text);

}  // namespace baton::cli
