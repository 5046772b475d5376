// What `baton router` and `baton serve` have in common: the router's flags, and the router.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/result.h"
#include "base/trace.h"
#include "cli/loaded_model.h"
#include "cli/server_flags.h"
#include "router/router_server.h"

namespace CLI {
class App;
}

namespace baton::cli {

/// As typed.
struct RouterFlags {
  std::string policy = "least-loaded";
};
void add_router_flags(CLI::App& command, RouterFlags& flags);
/// kInvalidArgument names --policy, its value and those there are.
[[nodiscard]] Result<router::RouterOptions> check(const RouterFlags& flags, int prefill_min_tokens);

struct RouterSetup {
  std::vector<std::string> names;  ///< of the model
  TextModel text;
  std::string api_key;  ///< of clients
  net::HttpServerOptions http;
  router::RouterOptions router;
  std::vector<router::EngineAddress> engines;
  std::string internal_key;  ///< of the engines
  std::chrono::milliseconds attach_timeout{};
  std::function<void(const router::HungEngine&)> on_hang;  ///< of RouterServerOptions
};
/// Listens, attaches to the engines, asks for their versions; not started yet.
[[nodiscard]] Result<std::unique_ptr<router::RouterServer>> make_router(RouterSetup setup,
                                                                        MetricsRegistry& metrics,
                                                                        Trace* trace);

}  // namespace baton::cli
