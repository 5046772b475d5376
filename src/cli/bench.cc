// baton bench URL|MODEL: flags of both benchmarks, and which of the two is meant.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "cli/bench_modes.h"
#include "cli/command.h"
#include "cli/flag_help.h"
#include "cli/models.h"

namespace baton::cli {
namespace {

/// Flags that make sense for one of the two only.
struct ModeFlags {
  std::vector<CLI::Option*> options;
  void add(CLI::Option* option) { options.push_back(option); }
  /// The first one that was given.
  [[nodiscard]] const CLI::Option* given() const {
    for (const CLI::Option* option : options) {
      if (option->count() > 0) return option;
    }
    return nullptr;
  }
};

struct Bench {
  BenchTarget target{std::string(kDefaultModel), ""};
  OfflineFlags offline;
  OnlineFlags online;
  ModeFlags of_model;
  ModeFlags of_server;
};

bool is_url(const std::string& target) { return target.find("://") != std::string::npos; }

void add_offline_flags(CLI::App& command, Bench& bench) {
  const FlagAdder add{command};
  OfflineFlags& f = bench.offline;
  const auto own = [&](CLI::Option* option) {
    bench.of_model.add(option->group("A model, in this process"));
    return option;
  };
  own(add("--prompt", f.prompts, "prompt lengths to prefill, in tokens; 0 = none"))->delimiter(',');
  own(add("--batch", f.batches, "streams that decode together; 0 = no decode"))->delimiter(',');
  own(add("--context", f.contexts, "tokens each stream has when it decodes"))->delimiter(',');
  own(add("--rounds", f.n_rounds, "times that everything is measured; medians are shown"));
  own(add("--threads", f.n_threads, "threads that compute; 0 = one for each core"));
  own(add("--max-batched-tokens", f.max_batched_tokens, "most tokens of a prefill pass"));
  own(add("--kernels", f.kernels, "reference, portable, avx2, avx512 or amx; default: the best"));
  own(add("--prefill-activations", f.prefill_activations,
          "what prefill kernels multiply quantised weights with: int16 or int8"));
}

void add_online_flags(CLI::App& command, Bench& bench) {
  const FlagAdder add{command};
  OnlineFlags& f = bench.online;
  constexpr const char* kGroup = "A server, under load";
  const auto own = [&](CLI::Option* option) {
    bench.of_server.add(option->group(kGroup));
    return option;
  };
  own(add("--rate", f.rate, "requests/s; 0 = all at once, as far as --concurrency lets them"));
  own(add("--arrival", f.arrival, "of requests at that rate: poisson or fixed"));
  own(add("--concurrency", f.concurrency, "most requests at once; 0 = no limit"));
  own(add("--requests", f.n_requests, "how many; of a trace the first ones (default: all)"));
  constexpr const char* kLengths = "512, 100-800, lognormal:MEAN:SIGMA or sharegpt";
  own(add("--prompt-tokens", f.prompt_tokens, kLengths));
  own(add("--output-tokens", f.output_tokens, kLengths));
  own(add("--shared-prefix", f.shared_prefix, "tokens that all prompts have in common, at first"));
  own(add("--trace", f.trace, "requests of a trace: Mooncake JSONL or Azure CSV, .gz or not"));
  own(add("--speed", f.speed, "the trace's time runs so many times as fast"));
  own(add("--length-scale", f.length_scale, "the trace's lengths, times this"));
  own(add("--max-prompt-tokens", f.max_prompt_tokens, "longer prompts are cut; 0 = no limit"));
  own(add("--max-output-tokens", f.max_output_tokens, "longer answers are cut; 0 = no limit"));
  own(add("--max-model-len", f.max_model_len, "prompt and answer together; 0 = ask the server"));
  own(add("--seed", f.seed, "of arrivals, lengths and tokens"));
  own(add("--slo", f.slo, "what goodput counts: ttft=500,tpot=50,e2e=5000 (ms)"));
  own(command.add_flag("--chat", f.chat, "/v1/chat/completions"));
  own(command.add_flag("--token-ids", f.token_ids, "prompts as token ids, not as words"));
  own(add("--id-range", f.id_range, "the ids, first-last"));
  own(command.add_flag("--stop-at-eos", f.stop_at_eos, "answers may end early (no ignore_eos)"));
  own(add("--temperature", f.temperature, "of sampling"));
  own(add("--model", f.model, "name of the model in requests; default: the server's first"));
  own(add("--api-key", f.api_key, "sent as a bearer token; default: $OPENAI_API_KEY"));
  own(add("--timeout", f.timeout, "of one request; 0 = none"));
  own(add("--warmup", f.n_warm_up, "requests before the clock starts, one after another"));
  own(add("--html", f.html, "file for a report with plots"));
}

Result<int> run(const Bench& bench) {
  const bool server = is_url(bench.target.target);
  const CLI::Option* other = (server ? bench.of_model : bench.of_server).given();
  if (other != nullptr) {
    return fail(ErrorCode::kInvalidArgument, "{}: is for {}, not for {}", other->get_name(),
                server ? "models" : "servers (http://HOST:PORT)", bench.target.target);
  }
  return server ? run_online_bench(bench.target, bench.online)
                : run_offline_bench(bench.target, bench.offline);
}

}  // namespace

Status check_writable(const char* flag, const std::string& path) {
  if (path.empty()) return {};
  // What is there stays until there is something new to write.
  if (std::ofstream(path, std::ios::binary | std::ios::app)) return {};
  return fail(ErrorCode::kIo, "{} '{}': {}", flag, path, std::strerror(errno));
}

Status write_file(const char* flag, const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (out) return {};
  return fail(ErrorCode::kIo, "{} '{}': {}", flag, path, std::strerror(errno));
}

void draw_progress(int64_t done, int64_t total, const std::string& more) {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  if (!terminal) return;
  if (total == 0) {
    std::fputs("\r\033[K", stderr);
    return;
  }
  constexpr int64_t kWidth = 30;
  const auto n = static_cast<size_t>(kWidth * done / total);
  const std::string bar = std::string(n, '#') + std::string(kWidth - n, ' ');
  fmt::print(stderr, "\r[{}] {}/{}{}\033[K", bar, done, total, more);
}

void add_bench(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand(
      "bench",
      "measure a model in this process, or a server under load, and say how near it comes");
  auto bench = std::make_shared<Bench>();
  const FlagAdder add{*command};
  add("TARGET", bench->target.target, "a .gguf file or a known name; or http://HOST:PORT");
  add("--json", bench->target.json, "file for everything that was measured, as JSON");
  add_offline_flags(*command, *bench);
  add_online_flags(*command, *bench);
  command->callback([bench, command, &chosen] {
    bench->online.n_requests_given = command->count("--requests") > 0;
    chosen = [bench] { return run(*bench); };
  });
}

}  // namespace baton::cli
