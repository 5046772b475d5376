// The flags of `baton serve`, parsed and checked before anything is loaded.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/role.h"
#include "cli/engine_flags.h"
#include "cli/engines_flag.h"
#include "cli/router_setup.h"
#include "cli/server_flags.h"
#include "supervisor/partition.h"

namespace baton::cli {

/// As typed; the texts are understood by check().
struct ServeFlags {
  EngineFlags engine;  ///< of every engine
  ServerFlags server;  ///< of the router
  RouterFlags router;
  std::string engines;  ///< empty: by cores
  bool oversubscribe = false;
  std::string hang_timeout = "50s";
};

/// Understood.
struct ServeOptions {
  ServeFlags flags;
  EngineSettings engine;
  ServerSettings server;
  router::RouterOptions router;
  std::vector<Role> roles;  ///< of the engines, prefill ones first
  supervisor::Partition partition;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

/// Errors name the flag, its value and what would be right.
[[nodiscard]] Result<ServeOptions> check(ServeFlags flags);

}  // namespace baton::cli
