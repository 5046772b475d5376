// baton serve [MODEL]: a supervisor with its engines and a router in front of them, until SIGTERM
// or SIGINT.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>

#include "base/log.h"
#include "cli/command.h"
#include "cli/flag_help.h"
#include "cli/models.h"
#include "cli/serve_options.h"
#include "cli/serving.h"
#include "cli/stop_signals.h"
#include "supervisor/supervisor.h"

namespace baton::cli {
namespace {

using supervisor::EngineStatus;
using supervisor::ProcessState;

// An engine without work ends in milliseconds.
constexpr std::chrono::milliseconds kEngineStopTimeout{5'000};
// Engines that are ready answer at once; a busy machine may take its time.
constexpr std::chrono::milliseconds kAttachTimeout{10'000};

/// Tells the router what becomes of the engines' processes. Thread-safe.
class Feed {
 public:
  void on_change(const EngineStatus& engine) {
    const std::lock_guard lock(mutex_);
    if (router_ != nullptr) tell(engine);
  }
  /// From now on; `engines`: as they are (a change that was told before is told again).
  void connect(router::RouterServer& router, const supervisor::Supervisor& supervisor) {
    const std::lock_guard lock(mutex_);
    router_ = &router;
    for (const EngineStatus& engine : supervisor.engines()) tell(engine);
  }
  void disconnect() {
    const std::lock_guard lock(mutex_);
    router_ = nullptr;
  }

 private:
  void tell(const EngineStatus& engine) {
    router_->set_engine(
        std::to_string(engine.index), engine.url,
        {engine.cpus, engine.restarts, std::string(name(engine.state)), engine.last_error});
  }

  std::mutex mutex_;
  router::RouterServer* router_ = nullptr;
};

supervisor::SupervisorOptions supervisor_options(const ServeOptions& options) {
  supervisor::SupervisorOptions out;
  for (size_t i = 0; i < options.roles.size(); ++i) {
    const auto& share = options.partition.shares[i];
    supervisor::EngineSpec spec;
    spec.name = fmt::format("engine {} ({})", i, name(options.roles[i]));
    spec.role = options.roles[i];
    spec.cpus = share.cpus;
    spec.pe_start = share.pe_start;
    spec.arguments = engine_arguments(
        options.flags.engine, {spec.name, spec.role, spec.cpus, options.flags.server.drain_timeout,
                               supervisor::kReadyFd, supervisor::kLifelineFd});
    out.engines.push_back(std::move(spec));
  }
  // Engines that do both hand nothing over: a world would only cost them memory of another kind.
  const bool alone = std::all_of(options.roles.begin(), options.roles.end(),
                                 [](Role role) { return role == Role::kBoth; });
  out.npes = alone ? 0 : options.partition.npes;
  return out;
}

/// Is the port free? Known before seconds are spent on engines.
Status check_port(const net::HttpServerOptions& options) {
  auto probe = net::HttpServer::create(options);
  if (!probe) return tl::unexpected(probe.error());
  return {};
}

/// What was read of the model.
struct Model {
  std::vector<std::string> names;
  TextModel text;
};

Result<std::unique_ptr<router::RouterServer>> start_router(const ServeOptions& options,
                                                           supervisor::Supervisor& engines,
                                                           Model model, MetricsRegistry& metrics,
                                                           Trace* trace) {
  RouterSetup setup;
  setup.names = std::move(model.names);
  setup.text = std::move(model.text);
  setup.api_key = options.flags.server.api_key;
  setup.http = options.server.http;
  setup.router = options.router;
  for (const EngineStatus& engine : engines.engines()) {
    setup.engines.push_back({std::to_string(engine.index), engine.url});
  }
  setup.internal_key = engines.internal_key();
  setup.attach_timeout = kAttachTimeout;
  setup.on_hang = [&engines](const router::HungEngine& hung) {
    engines.kill_hung(std::stoi(hung.id), hung.n_restarts, hung.reason);
  };
  return make_router(std::move(setup), metrics, trace);
}

Result<Model> read_model(const ServeFlags& flags) {
  auto file = open_model(flags.engine.model);
  if (!file) return tl::unexpected(file.error());
  auto text = load_text(**file);
  if (!text) return tl::unexpected(text.error());
  return Model{flags.engine.served_model_names, std::move(*text)};
}

std::string describe_engines(const std::vector<EngineStatus>& engines) {
  std::string out;
  for (const EngineStatus& engine : engines) {
    std::string cpus;
    for (const int cpu : engine.cpus) cpus += (cpus.empty() ? "" : ",") + std::to_string(cpu);
    out += fmt::format("{}{} on CPU {}", out.empty() ? "" : ", ", engine.name, cpus);
  }
  return out;
}

void say_ready(const ServeOptions& options, const router::RouterServer& router,
               const std::vector<EngineStatus>& engines, bool chat) {
  const ServeFlags& flags = options.flags;
  spdlog::info(
      "serving {} on {}:{}: {}, ready in {:.2f} s", flags.engine.served_model_names.front(),
      flags.server.host, router.port(), describe_engines(engines),
      std::chrono::duration<double>(std::chrono::steady_clock::now() - options.start).count());
  spdlog::default_logger()->flush();
  fmt::print("{}\n", curl_line(flags.server, router.port(), chat));
  std::fflush(stdout);
}

/// From the engines' start to their end.
Result<int> run(const ServeOptions& options, Model model, StopSignals& signals) {
  const bool chat = model.text.chat_template != nullptr;
  auto trace = open_trace(options.flags.engine.trace, "router", Trace::Mode::kNew);
  if (!trace) return tl::unexpected(trace.error());
  MetricsRegistry metrics({{"model_name", model.names.front()}});
  Feed feed;
  auto created = supervisor::Supervisor::create(
      supervisor_options(options), [&](const EngineStatus& engine) { feed.on_change(engine); });
  if (!created) return tl::unexpected(created.error());
  supervisor::Supervisor& engines = **created;
  signals.on_stop([&] { engines.interrupt(); });
  const Status started = engines.start();
  signals.on_stop([] { ::_exit(0); });  // engines end with us; nothing has been served yet
  if (!started) {
    if (started.error().code == ErrorCode::kCancelled) return 0;
    return tl::unexpected(started.error());
  }
  auto router = start_router(options, engines, std::move(model), metrics, trace->get());
  if (!router) return tl::unexpected(router.error());
  feed.connect(**router, engines);
  signals.on_stop({});
  (*router)->start();
  say_ready(options, **router, engines.engines(), chat);

  const int signal = signals.wait();
  spdlog::info("signal {}: finishing what runs (up to {})", signal,
               options.flags.server.drain_timeout);
  const bool finished = (*router)->drain(options.server.drain_timeout);
  feed.disconnect();
  engines.stop(kEngineStopTimeout);
  spdlog::info(finished ? "stopped" : "stopped; some requests were ended by the drain timeout");
  return 0;
}

Result<int> serve(ServeFlags typed) {
  auto options = check(std::move(typed));
  if (!options) return tl::unexpected(options.error());
  EngineFlags& flags = options->flags.engine;
  if (auto s = init_logging(flags.log_level, flags.log_format); !s) {
    return tl::unexpected(s.error());
  }
  auto path = resolve_model(flags.model);
  if (!path) return tl::unexpected(path.error());
  flags.served_model_names = served_names(flags, *path);
  flags.model = *path;  // engines need not resolve it again
  StopSignals signals;  // from here on; a download ends at once
  signals.on_stop([] { ::_exit(0); });
  auto model = read_model(options->flags);
  if (!model) return tl::unexpected(model.error());
  if (auto s = check_port(options->server.http); !s) return tl::unexpected(s.error());
  return run(*options, std::move(*model), signals);
}

}  // namespace

void add_serve(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand("serve", "serve a model over the OpenAI API");
  auto flags = std::make_shared<ServeFlags>();
  flags->engine.model = kDefaultModel;
  const FlagAdder add{*command};
  add("MODEL", flags->engine.model, "a .gguf file, or a name that `baton pull` knows");
  add("--engines", flags->engines,
      "engines by role: prefill, decode, both, as in 1P1D, 2P1D or 1B; default by cores");
  command->add_flag("--oversubscribe", flags->oversubscribe,
                    "let more engines than CPUs share them, for tests");
  add("--hang-timeout", flags->hang_timeout,
      "how long an engine that is silent (for 10 s) or makes no progress (for 60 s) may go on so "
      "before it is killed and started again; 0 = for ever");
  add_router_flags(*command, flags->router);
  add_engine_flags(*command, flags->engine);
  add_server_flags(*command, flags->server);
  command->callback([flags, command, &chosen] {
    note_api_key(*command, flags->server);
    chosen = [flags] { return serve(*flags); };
  });
}

}  // namespace baton::cli
