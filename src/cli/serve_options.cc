#include "cli/serve_options.h"

#include <utility>

#include "cli/size.h"

namespace baton::cli {
namespace {

std::vector<Role> roles(const EngineCounts& counts) {
  std::vector<Role> out(static_cast<size_t>(counts.prefill), Role::kPrefill);
  out.insert(out.end(), static_cast<size_t>(counts.decode), Role::kDecode);
  out.insert(out.end(), static_cast<size_t>(counts.both), Role::kBoth);
  return out;
}

/// One core can't do both phases at once: an engine of its own for each would only halve it.
std::string default_engines(size_t n_cores) { return n_cores == 1 ? "1B" : "1P1D"; }

}  // namespace

Result<ServeOptions> check(ServeFlags flags) {
  ServeOptions options;
  auto engine = check(flags.engine);
  if (!engine) return tl::unexpected(engine.error());
  options.engine = std::move(*engine);
  auto server = check(flags.server);
  if (!server) return tl::unexpected(server.error());
  options.server = std::move(*server);
  auto router = check(flags.router, options.engine.prefill_min_tokens);
  if (!router) return tl::unexpected(router.error());
  options.router = std::move(*router);
  auto hang_timeout = parse_duration("--hang-timeout", flags.hang_timeout);
  if (!hang_timeout) return tl::unexpected(hang_timeout.error());
  options.router.hang_timeout_ns = std::chrono::nanoseconds(*hang_timeout).count();

  auto counts = parse_engines(flags.engines.empty() ? default_engines(options.engine.cores.size())
                                                    : flags.engines);
  if (!counts) return tl::unexpected(counts.error());
  options.roles = roles(*counts);
  auto partition = supervisor::partition({.n_devices = std::vector<int>(options.roles.size(), 1),
                                          .cores = options.engine.cores,
                                          .oversubscribe = flags.oversubscribe});
  if (!partition) return tl::unexpected(partition.error());
  options.partition = std::move(*partition);
  options.flags = std::move(flags);
  return options;
}

}  // namespace baton::cli
