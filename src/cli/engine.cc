// baton engine: one engine as a server of its own, with its place in a symmetric world if the
// environment gives it one. `baton serve` starts its engines with it.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "base/available_memory.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/flag_help.h"
#include "cli/models.h"
#include "cli/server_flags.h"
#include "cli/serving.h"
#include "cli/stop_signals.h"
#include "cli/version_json.h"
#include "server/engine_server.h"
#include "supervisor/ready_line.h"

namespace baton::cli {
namespace {

struct Flags {
  EngineFlags engine;
  ServerFlags server;
  std::string role = "both";
  std::string name;
  int ready_fd = -1;
  int lifeline_fd = -1;
};

struct Options {
  Flags flags;
  Role role = Role::kBoth;
  std::vector<int> cpus;
  EngineSettings engine;
  ServerSettings server;
  std::string name;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

Result<Options> check(const Flags& flags) {
  Options options;
  options.flags = flags;
  auto role = parse_role(flags.role);
  if (!role) return tl::unexpected(role.error());
  options.role = *role;
  auto engine = check(flags.engine);
  if (!engine) return tl::unexpected(engine.error());
  options.engine = std::move(*engine);
  auto server = check(flags.server);
  if (!server) return tl::unexpected(server.error());
  options.server = std::move(*server);
  for (const auto& core : options.engine.cores) {
    options.cpus.insert(options.cpus.end(), core.begin(), core.end());
  }
  options.name = flags.name.empty() ? fmt::format("engine ({})", flags.role) : flags.name;
  return options;
}

Status check_descriptors(const Flags& flags) {
  for (const int fd : {flags.ready_fd, flags.lifeline_fd}) {
    if (fd < 0 || ::fcntl(fd, F_GETFD) >= 0) continue;
    return fail(ErrorCode::kInvalidArgument,
                "--ready-fd {}, --lifeline-fd {}: {} is not an open descriptor", flags.ready_fd,
                flags.lifeline_fd, fd);
  }
  return {};
}

/// Ends this process with whoever holds the other end of the pipe.
void watch_lifeline(int fd) {
  if (fd < 0) return;
  // It is there before StopSignals: without this a signal could come to it, and end the process.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([fd] {
    char byte = 0;
    for (ssize_t n = 1; n > 0 || (n < 0 && errno == EINTR);) n = ::read(fd, &byte, 1);
    ::_exit(1);
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// The weights of the role are loaded by now.
Status check_memory(const model::Transformer& model, const Options& options) {
  const uint64_t available = available_bytes();
  if (available == 0 || options.engine.kv_bytes <= available) return {};
  return fail(ErrorCode::kExhausted,
              "--kv-memory {}: only {} MiB of memory are available beside the weights ({} MiB, "
              "role {})",
              options.flags.engine.kv_memory, available >> 20, model.weights_bytes() >> 20,
              name(options.role));
}

TensorType kv_type(const std::string& flag, linalg::KernelSet kernels) {
  if (flag == "f32") return TensorType::kF32;
  if (flag == "bf16") return TensorType::kBF16;
  return kernels == linalg::KernelSet::kReference ? TensorType::kF32 : TensorType::kBF16;
}

/// Matrix units work on panels of 128 rows: fewer take as long.
int mixed_prefill_tokens(const EngineFlags& flags, linalg::KernelSet kernels) {
  if (flags.mixed_prefill_tokens > 0) return flags.mixed_prefill_tokens;
  return kernels == linalg::KernelSet::kAmx ? 128 : 64;
}

server::EngineServerOptions server_options(const Options& options, frontend::FrontendOptions front,
                                           ComputeModel& compute) {
  server::EngineServerOptions out;
  const EngineFlags& flags = options.flags.engine;
  out.engine.role = options.role;
  out.engine.kv_bytes = options.engine.kv_bytes;
  out.engine.kv_type = kv_type(flags.kv_dtype, compute.kernels());
  out.engine.context_tokens = flags.context;
  out.engine.max_batch = flags.max_batch;
  out.engine.max_batched_tokens = flags.max_batched_tokens;
  out.engine.mixed_prefill_tokens = mixed_prefill_tokens(flags, compute.kernels());
  out.engine.prefill_min_tokens = options.engine.prefill_min_tokens;
  out.engine.exact_prefix = flags.exact_prefix;
  out.engine.model_identity = compute.transformer().kv_identity();
  out.engine.lease_ns = std::chrono::nanoseconds(options.engine.lease).count();
  out.engine.prefix_hash_seed = random_seed();
  out.engine_cpu = options.cpus.front();
  out.name = options.name;
  out.cpus = options.cpus;
  const char* world = std::getenv(shmem::kWorldVariable);
  out.world_json = world == nullptr ? "" : world;
  out.join_timeout = options.engine.join_timeout;

  out.frontend = std::move(front);
  out.frontend.card.n_vocab = compute.transformer().n_vocab();
  out.frontend.card.fingerprint += fmt::format("-{}", linalg::name(compute.kernels()));
  if (compute.transformer().prefill_activations() == linalg::ActivationType::kInt8) {
    out.frontend.card.fingerprint += "-int8";
  }
  out.frontend.version_json =
      [json = engine_version_json(compute.transformer(), compute.kernels())] { return json; };
  // A supervisor's engines serve its router only.
  const std::string key = internal_key();
  out.frontend.api_key = key.empty() ? options.flags.server.api_key : key;
  out.http = options.server.http;
  return out;
}

void log_ready(const Options& options, const server::EngineServer& server, ComputeModel& compute) {
  const auto& limits = server.engine().limits();
  spdlog::info(
      "ready on {} in {:.2f} s: kernels {}, weights {}, {} threads, context {}, {} KV blocks of {} "
      "tokens",
      local_url(options.flags.server.host, server.port()),
      std::chrono::duration<double>(std::chrono::steady_clock::now() - options.start).count(),
      linalg::name(compute.kernels()),
      compute.transformer().weights_cached() ? "from the cache" : "packed", options.cpus.size(),
      limits.context_tokens, limits.n_blocks, limits.block_tokens);
}

void say(int fd, const std::string& line) {
  if (fd < 0) return;
  (void)!::write(fd, line.data(), line.size());
  ::close(fd);
}

/// Serves until a signal comes.
Result<int> serve(const Options& options) {
  const Flags& flags = options.flags;
  auto path = resolve_model(flags.engine.model);
  if (!path) return tl::unexpected(path.error());
  StopSignals signals;
  signals.on_stop([] { ::_exit(0); });  // until it serves there is nothing to finish
  auto file = open_model(*path);
  if (!file) return tl::unexpected(file.error());
  auto text = load_text(**file);
  if (!text) return tl::unexpected(text.error());
  auto compute =
      ComputeModel::create(*file, {.cpus = options.cpus,
                                   .context_length = flags.engine.context,
                                   .role = options.role,
                                   .prefill_activations = flags.engine.prefill_activations,
                                   .packed_cache = flags.engine.packed_cache == "on"});
  if (!compute) return tl::unexpected(compute.error());
  model::Transformer& transformer = (*compute)->transformer();
  if (auto s = check_memory(transformer, options); !s) return tl::unexpected(s.error());
  auto trace = open_trace(flags.engine.trace, options.name, Trace::Mode::kJoin);
  if (!trace) return tl::unexpected(trace.error());

  const auto names = served_names(flags.engine, *path);
  MetricsRegistry metrics({{"model_name", names.front()}});
  auto server = server::EngineServer::create(
      server_options(options, frontend_options(*text, names), **compute),
      {transformer, (*compute)->pool(), metrics, trace->get()});
  if (!server) return tl::unexpected(server.error());
  (*server)->start();
  signals.on_stop({});
  log_ready(options, **server, **compute);
  say(flags.ready_fd,
      supervisor::ready_line({local_url(flags.server.host, (*server)->port()), ::getpid()}));

  const int signal = signals.wait();
  spdlog::debug("signal {}: finishing what runs (up to {})", signal, flags.server.drain_timeout);
  const bool finished = (*server)->drain(options.server.drain_timeout);
  if (!finished) spdlog::warn("some requests were ended by the drain timeout");
  return 0;
}

Result<int> run(const Flags& flags) {
  ::prctl(PR_SET_NAME, "baton");  // exec of /proc/self/exe would have it be "exe"
  if (auto s = check_descriptors(flags); !s) return tl::unexpected(s.error());
  watch_lifeline(flags.lifeline_fd);
  const auto body = [&]() -> Result<int> {
    auto options = check(flags);
    if (!options) return tl::unexpected(options.error());
    auto logging = init_logging(flags.engine.log_level, flags.engine.log_format, flags.name);
    if (!logging) return tl::unexpected(logging.error());
    return serve(*options);
  };
  auto status = body();
  if (status || flags.ready_fd < 0) return status;
  // Whoever waits at the other end says it, once.
  say(flags.ready_fd, supervisor::failed_line(status.error()));
  return status.error().code == ErrorCode::kInvalidArgument ? 2 : 1;
}

}  // namespace

void add_engine(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand("engine", "one engine alone, for a router elsewhere");
  auto flags = std::make_shared<Flags>();
  flags->engine.model = kDefaultModel;
  flags->server.port = 8001;
  const FlagAdder add{*command};
  add("--model", flags->engine.model, "a .gguf file, or a name that `baton pull` knows");
  add("--role", flags->role, "prefill, decode or both");
  add("--name", flags->name, "what logs, traces and other engines call it");
  add("--ready-fd", flags->ready_fd,
      "descriptor that gets a JSON line once it serves: url and pid, or error");
  add("--lifeline-fd", flags->lifeline_fd, "descriptor of a pipe at whose end the engine ends");
  add_engine_flags(*command, flags->engine);
  add_server_flags(*command, flags->server);
  command->callback([flags, command, &chosen] {
    note_api_key(*command, flags->server);
    chosen = [flags] { return run(*flags); };
  });
}

}  // namespace baton::cli
