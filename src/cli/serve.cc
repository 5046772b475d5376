// baton serve [MODEL]: loads the model, serves it until SIGTERM or SIGINT.
#include <pthread.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <random>

#include "api/json_writer.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/loaded_model.h"
#include "cli/models.h"
#include "cli/serve_options.h"
#include "cli/version.h"
#include "frontend/chat_renderer.h"
#include "server/engine_server.h"

namespace baton::cli {
namespace {

/// Blocks the signals that end us in all threads to come, so that wait() alone receives them.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    std::signal(SIGPIPE, SIG_IGN);  // a client that went away is an error code, not our end
  }
  int wait() {
    int signal = 0;
    while (sigwait(&set_, &signal) != 0) {
    }
    // A second one ends the process at once.
    pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
    return signal;
  }

 private:
  sigset_t set_{};
};

/// Memory that the kernel could give us now (MemAvailable), or 0 if it doesn't say.
uint64_t available_bytes() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  while (in >> key >> kib) {
    if (key == "MemAvailable:") return kib << 10;
    in.ignore(100, '\n');
  }
  return 0;
}

Status check_memory(const model::Transformer& model, const ServeOptions& options) {
  const uint64_t available = available_bytes();
  if (available == 0 || options.kv_bytes <= available) return {};
  return fail(ErrorCode::kExhausted,
              "--kv-memory {}: only {} MiB of memory are available beside the weights ({} MiB)",
              options.flags.kv_memory, available >> 20, model.weights_bytes() >> 20);
}

std::string version_json(const model::Transformer& model, linalg::KernelSet kernels) {
  api::JsonWriter json;
  json.begin_object();
  json.key("version").string(kVersion).key("commit").string(kCommit);
  json.key("build").string(kBuildFlags);
  json.key("cpu_features").string(describe(cpu_features()));
  json.key("kernels").string(linalg::name(kernels));
  json.key("gemms").begin_array();
  for (const auto& gemm : model.gemms()) {
    const bool prefill = gemm.kernel_class == linalg::KernelClass::kPrefill;
    json.begin_object().key("name").string(gemm.name);
    json.key("phase").string(prefill ? "prefill" : "decode");
    json.key("implementation").string(gemm.implementation);
    json.key("matrices").integer(gemm.n_matrices);
    json.key("bytes").integer(static_cast<int64_t>(gemm.bytes)).end_object();
  }
  json.end_array().end_object();
  return json.take();
}

TensorType kv_type(const ServeFlags& flags, linalg::KernelSet kernels) {
  if (flags.kv_dtype == "f32") return TensorType::kF32;
  if (flags.kv_dtype == "bf16") return TensorType::kBF16;
  return kernels == linalg::KernelSet::kReference ? TensorType::kF32 : TensorType::kBF16;
}

server::EngineServerOptions server_options(const ServeOptions& options, const TextModel& text,
                                           ComputeModel& compute) {
  server::EngineServerOptions out;
  const ServeFlags& flags = options.flags;
  out.engine.kv_bytes = options.kv_bytes;
  out.engine.kv_type = kv_type(flags, compute.kernels());
  out.engine.context_tokens = flags.context;
  out.engine.max_batch = flags.max_batch;
  out.engine.max_batched_tokens = flags.max_batched_tokens;
  out.engine.prefill_min_tokens = options.prefill_min_tokens;
  out.engine.exact_prefix = flags.exact_prefix;
  out.engine_cpu = options.cpus.front();

  auto& card = out.frontend.card;
  card.names = flags.served_model_names;
  card.n_vocab = compute.transformer().n_vocab();
  card.eos_ids = text.tokenizer->end_ids();
  card.fingerprint = fmt::format("baton-{}-{}", kVersion, linalg::name(compute.kernels()));
  card.created_s = std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1);
  out.frontend.codec =
      frontend::make_model_codec(text.tokenizer, frontend::make_chat_renderer(text.chat_template));
  out.frontend.api_key = flags.api_key;
  out.frontend.version_json = [json = version_json(compute.transformer(), compute.kernels())] {
    return json;
  };
  std::random_device random;
  out.frontend.random_seed = (uint64_t{random()} << 32) | random();
  out.engine.prefix_hash_seed = (uint64_t{random()} << 32) | random();

  out.http.host = flags.host;
  out.http.port = static_cast<uint16_t>(flags.port);
  out.http.max_body_bytes = options.max_body_bytes;
  out.http.allow_origin = flags.allow_origin;
  return out;
}

/// The line a person can copy.
std::string curl_line(const ServeOptions& options, uint16_t port, bool chat) {
  const std::string& host = options.flags.host;
  const bool any = host == "0.0.0.0" || host == "::";
  const bool ipv6 = host.find(':') != std::string::npos;
  const std::string key =
      options.flags.api_key.empty() ? "" : "-H 'Authorization: Bearer '\"$BATON_API_KEY\" ";
  const std::string_view path = chat ? "chat/completions" : "completions";
  const std::string_view body =
      chat
          ? R"({"messages":[{"role":"user","content":"What is the capital of France?"}],"max_tokens":50})"
          : R"({"prompt":"The capital of France is","max_tokens":20})";
  return fmt::format("curl http://{}:{}/v1/{} {}-H 'Content-Type: application/json' -d '{}'",
                     any    ? "127.0.0.1"
                     : ipv6 ? "[" + host + "]"
                            : host,
                     port, path, key, body);
}

Result<int> serve(ServeFlags typed) {
  const auto start = std::chrono::steady_clock::now();
  auto options = check(std::move(typed));
  if (!options) return tl::unexpected(options.error());
  ServeFlags& flags = options->flags;
  if (auto status = init_logging(flags.log_level, flags.log_format); !status) {
    return tl::unexpected(status.error());
  }
  auto path = resolve_model(flags.model);
  if (!path) return tl::unexpected(path.error());
  Signals signals;  // from here on; a download ends at once
  if (flags.served_model_names.empty()) {
    flags.served_model_names = {find_known_model(flags.model) != nullptr
                                    ? flags.model
                                    : std::filesystem::path(*path).stem().string()};
  }
  auto file = open_model(*path);
  if (!file) return tl::unexpected(file.error());
  auto text = load_text(**file);
  if (!text) return tl::unexpected(text.error());
  auto compute = ComputeModel::create(*file, {options->cpus, flags.context});
  if (!compute) return tl::unexpected(compute.error());
  model::Transformer& transformer = (*compute)->transformer();
  if (auto status = check_memory(transformer, *options); !status)
    return tl::unexpected(status.error());

  MetricsRegistry metrics({{"model_name", flags.served_model_names.front()}});
  std::unique_ptr<Trace> trace;
  if (!flags.trace.empty()) {
    auto opened = Trace::open(flags.trace, "engine 0 (both)");
    if (!opened) return tl::unexpected(opened.error());
    trace = std::move(*opened);
  }
  auto server =
      server::EngineServer::create(server_options(*options, *text, **compute),
                                   {transformer, (*compute)->pool(), metrics, trace.get()});
  if (!server) return tl::unexpected(server.error());
  (*server)->start();

  const auto& limits = (*server)->engine().limits();
  spdlog::info(
      "serving {} on {}:{}: kernels {}, {} threads, context {}, {} KV blocks of {} tokens, ready "
      "in {:.2f} s",
      flags.served_model_names.front(), flags.host, (*server)->port(),
      linalg::name((*compute)->kernels()), options->cpus.size(), limits.context_tokens,
      limits.n_blocks, limits.block_tokens,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  spdlog::default_logger()->flush();
  fmt::print("{}\n", curl_line(*options, (*server)->port(), text->chat_template != nullptr));
  std::fflush(stdout);

  const int signal = signals.wait();
  spdlog::info("signal {}: finishing what runs (up to {})", signal, flags.drain_timeout);
  const bool finished = (*server)->drain(options->drain_timeout);
  spdlog::info(finished ? "stopped" : "stopped; some requests were ended by the drain timeout");
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand("serve", "serve a model over the OpenAI API");
  auto flags = std::make_shared<ServeFlags>();
  flags->model = kDefaultModel;
  const auto option = [&](const char* names, auto& value, const char* help) {
    command->add_option(names, value, help)->capture_default_str();
  };
  option("MODEL", flags->model, "a .gguf file, or a name that `baton pull` knows");
  option("--host", flags->host, "address to listen on");
  option("--port", flags->port, "port to listen on; 0 = any free one");
  option("--engines", flags->engines, "engines by role; 1B = one that does prefill and decode");
  option("--served-model-name", flags->served_model_names,
         "name(s) clients use; the first is shown");
  option("--context", flags->context, "longest prompt + answer in tokens; 0 = the model's own");
  option("--max-batch", flags->max_batch, "sequences that run at once");
  option("--max-batched-tokens", flags->max_batched_tokens, "tokens of one step");
  option("--kv-memory", flags->kv_memory, "memory for the KV cache");
  option("--remote-prefill-min-tokens", flags->remote_prefill_min_tokens,
         "uncached prompt tokens from which the prefill kernels are used: auto or a number");
  option("--kv-dtype", flags->kv_dtype, "auto, bf16 or f32");
  command->add_flag("--exact-prefix", flags->exact_prefix,
                    "cache only what keeps a request's bits the same with and without the cache");
  option("--cpus", flags->cpus, "CPUs of the engine, as in 0-3,8; default all");
  option("--max-body", flags->max_body, "largest request body");
  option("--allow-origin", flags->allow_origin, "CORS: the allowed origin, or *");
  option("--api-key", flags->api_key, "key that clients must send as a Bearer token");
  auto* key = command->get_option("--api-key")->envname("BATON_API_KEY");
  option("--drain-timeout", flags->drain_timeout, "how long running requests may take on SIGTERM");
  option("--trace", flags->trace, "write a Chrome trace to this file");
  option("--log-level", flags->log_level, "trace, debug, info, warn, error or off");
  option("--log-format", flags->log_format, "text or json");
  command->callback([flags, key, &chosen] {
    const char* from_environment = std::getenv("BATON_API_KEY");
    flags->api_key_given = key->count() > 0 || from_environment != nullptr;
    chosen = [flags] { return serve(*flags); };
  });
}

}  // namespace baton::cli
