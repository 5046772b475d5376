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
  ModeFlags of_model;
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
  own(add("--kernels", f.kernels, "reference, portable, avx512 or amx; default: the best"));
}

Result<int> run(const Bench& bench) {
  if (is_url(bench.target.target)) {
    return fail(ErrorCode::kInvalidArgument, "bench {}: not there yet", bench.target.target);
  }
  return run_offline_bench(bench.target, bench.offline);
}

}  // namespace

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
  command->callback([bench, &chosen] { chosen = [bench] { return run(*bench); }; });
}

}  // namespace baton::cli
