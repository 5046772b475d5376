// The flags of `baton serve`, parsed and checked before anything is loaded.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/engines_flag.h"

namespace baton::cli {

/// As typed; the strings are checked by check().
struct ServeFlags {
  std::string model;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string engines = "1B";
  std::vector<std::string> served_model_names;
  int context = 0;
  int max_batch = 64;
  int max_batched_tokens = 512;
  std::string kv_memory = "2GiB";
  std::string remote_prefill_min_tokens = "auto";
  std::string kv_dtype = "auto";
  bool exact_prefix = false;
  std::string cpus;
  std::string max_body = "32MiB";
  std::string allow_origin;
  std::string api_key;
  bool api_key_given = false;  ///< an empty one is then a mistake, not an open server
  std::string drain_timeout = "30s";
  std::string trace;
  std::string log_level = "info";
  std::string log_format = "text";
};

/// Understood.
struct ServeOptions {
  ServeFlags flags;
  EngineCounts engines;
  uint64_t kv_bytes = 0;
  uint64_t max_body_bytes = 0;
  std::chrono::milliseconds drain_timeout{};
  int prefill_min_tokens = 0;
  std::vector<int> cpus;  ///< of the engine, at least one
};

/// Errors name the flag, its value and what would be right.
[[nodiscard]] Result<ServeOptions> check(ServeFlags flags);

}  // namespace baton::cli
