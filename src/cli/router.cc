// baton router: the router alone, in front of engines that run elsewhere. Of the model only the
// tokenizer and the chat template are read.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/log.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/flag_help.h"
#include "cli/models.h"
#include "cli/router_setup.h"
#include "cli/serving.h"
#include "cli/size.h"
#include "cli/stop_signals.h"

namespace baton::cli {
namespace {

struct Flags {
  EngineFlags model;  ///< of which a router has the model, its names, the minimum and the logs
  ServerFlags server;
  RouterFlags router;
  std::vector<std::string> engines;
  std::string attach_timeout = "30s";
};

struct Options {
  ServerSettings server;
  router::RouterOptions router;
  std::chrono::milliseconds attach_timeout{};
};

Result<Options> check(const Flags& flags) {
  Options out;
  auto server = check(flags.server);
  if (!server) return tl::unexpected(server.error());
  out.server = std::move(*server);
  auto min_tokens = parse_min_tokens(flags.model.remote_prefill_min_tokens);
  if (!min_tokens) return tl::unexpected(min_tokens.error());
  auto router = check(flags.router, *min_tokens);
  if (!router) return tl::unexpected(router.error());
  out.router = std::move(*router);
  auto timeout = parse_duration("--attach-timeout", flags.attach_timeout);
  if (!timeout) return tl::unexpected(timeout.error());
  out.attach_timeout = *timeout;
  return out;
}

Result<int> run(const Flags& flags) {
  auto options = check(flags);
  if (!options) return tl::unexpected(options.error());
  if (auto s = init_logging(flags.model.log_level, flags.model.log_format); !s) {
    return tl::unexpected(s.error());
  }
  auto path = resolve_model(flags.model.model);
  if (!path) return tl::unexpected(path.error());
  StopSignals signals;
  signals.on_stop([] { ::_exit(0); });  // until it serves there is nothing to finish
  auto file = open_model(*path);
  if (!file) return tl::unexpected(file.error());
  auto text = load_text(**file);
  if (!text) return tl::unexpected(text.error());
  const bool chat = text->chat_template != nullptr;
  auto trace = open_trace(flags.model.trace, "router", Trace::Mode::kJoin);
  if (!trace) return tl::unexpected(trace.error());

  RouterSetup setup;
  setup.names = served_names(flags.model, *path);
  setup.text = std::move(*text);
  setup.api_key = flags.server.api_key;
  setup.http = options->server.http;
  setup.router = options->router;
  for (const std::string& url : flags.engines) {
    setup.engines.push_back({std::to_string(setup.engines.size()), url});
  }
  setup.internal_key = internal_key();
  setup.attach_timeout = options->attach_timeout;
  MetricsRegistry metrics({{"model_name", setup.names.front()}});
  auto router = make_router(std::move(setup), metrics, trace->get());
  if (!router) return tl::unexpected(router.error());
  (*router)->start();
  signals.on_stop({});
  spdlog::info("routing on {}:{} to {} engines", flags.server.host, (*router)->port(),
               flags.engines.size());
  fmt::print("{}\n", curl_line(flags.server, (*router)->port(), chat));
  std::fflush(stdout);

  const int signal = signals.wait();
  spdlog::info("signal {}: finishing what runs (up to {})", signal, flags.server.drain_timeout);
  const bool finished = (*router)->drain(options->server.drain_timeout);
  spdlog::info(finished ? "stopped" : "stopped; some requests were ended by the drain timeout");
  return 0;
}

}  // namespace

void add_router(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand("router", "the router alone, in front of running engines");
  auto flags = std::make_shared<Flags>();
  flags->model.model = kDefaultModel;
  const FlagAdder add{*command};
  add("--model", flags->model.model, "the engines' model; only its text side is read");
  add("--engine", flags->engines, "URL of an engine, http://host:port; once for each")->required();
  add("--attach-timeout", flags->attach_timeout, "how long to wait for the engines at the start");
  add("--served-model-name", flags->model.served_model_names,
      "name(s) clients use; the first is shown");
  add("--remote-prefill-min-tokens", flags->model.remote_prefill_min_tokens,
      "uncached prompt tokens from which a prefill engine is used: auto or a number");
  add("--trace", flags->model.trace, "add to this Chrome trace file");
  add("--log-level", flags->model.log_level, "trace, debug, info, warn, error or off");
  add("--log-format", flags->model.log_format, "text or json");
  add_router_flags(*command, flags->router);
  add_server_flags(*command, flags->server);
  command->callback([flags, command, &chosen] {
    note_api_key(*command, flags->server);
    chosen = [flags] { return run(*flags); };
  });
}

}  // namespace baton::cli
