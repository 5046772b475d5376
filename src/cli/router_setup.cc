#include "cli/router_setup.h"

#include <CLI/CLI.hpp>

#include "cli/flag_help.h"
#include "cli/serving.h"
#include "cli/versions.h"

namespace baton::cli {

void add_router_flags(CLI::App& command, RouterFlags& flags) {
  const FlagAdder add{command};
  add("--policy", flags.policy, "how the router picks engines: least-loaded or round-robin");
}

Result<router::RouterOptions> check(const RouterFlags& flags, int prefill_min_tokens) {
  if (flags.policy != "least-loaded" && flags.policy != "round-robin") {
    const bool planned = flags.policy == "auto" || flags.policy == "prefix";
    return fail(ErrorCode::kInvalidArgument, "--policy '{}': {}use least-loaded or round-robin",
                flags.policy, planned ? "not there yet; " : "");
  }
  router::RouterOptions out;
  out.policy = flags.policy;
  out.planner.remote_prefill_min_tokens = prefill_min_tokens;
  return out;
}

Result<std::unique_ptr<router::RouterServer>> make_router(RouterSetup setup,
                                                          MetricsRegistry& metrics, Trace* trace) {
  router::RouterServerOptions options;
  options.frontend = frontend_options(setup.text, setup.names);
  options.frontend.api_key = setup.api_key;
  const auto version = std::make_shared<std::string>();
  options.frontend.version_json = [version] { return *version; };
  options.http = setup.http;
  options.router = setup.router;
  options.engines = setup.engines;
  options.internal_key = setup.internal_key;
  options.attach_timeout = setup.attach_timeout;
  options.on_hang = setup.on_hang;
  auto router = router::RouterServer::create(std::move(options), metrics, trace);
  // Written before any request is answered: the engines have been attached to by now.
  if (router) *version = router_version_json(ask_versions(setup.engines, setup.internal_key));
  return router;
}

}  // namespace baton::cli
