// baton bench MODEL: prefill and decode in this process.
#include <algorithm>

#include "base/available_memory.h"
#include "base/cpu.h"
#include "bench/offline_report.h"
#include "cli/bench_modes.h"
#include "cli/flag_help.h"
#include "cli/loaded_model.h"
#include "cli/models.h"
#include "cli/stop_signals.h"
#include "cli/version.h"

namespace baton::cli {
namespace {

/// The values but for a lone 0, which means none.
Result<std::vector<int>> lengths(const char* flag, const std::vector<int>& values, int most) {
  if (values == std::vector{0}) return std::vector<int>();
  for (const int value : values) {
    if (auto s = check_range(flag, value, 1, most); !s) return tl::unexpected(s.error());
  }
  return values;
}

Result<std::vector<int>> choose_cpus(int n_threads) {
  std::vector<int> cpus = allowed_cpus();
  if (n_threads == 0) n_threads = static_cast<int>(allowed_cores().size());
  const int most = static_cast<int>(cpus.size());
  if (auto s = check_range("--threads", n_threads, 1, most); !s) return tl::unexpected(s.error());
  cpus.resize(static_cast<size_t>(n_threads));
  return cpus;
}

Result<linalg::KernelSet> check_kernels(const std::string& wanted) {
  auto kernels = chosen_kernels(wanted);
  if (kernels || wanted.empty()) return kernels;
  Error error = kernels.error();
  constexpr std::string_view kVariable = "BATON_KERNELS";
  if (const size_t at = error.message.find(kVariable); at != std::string::npos) {
    error.message.replace(at, kVariable.size(), "--kernels");
  }
  return tl::unexpected(std::move(error));
}

}  // namespace

Result<bench::OfflineOptions> check(const OfflineFlags& flags) {
  constexpr int kMostTokens = 1 << 24;
  constexpr int kMostStreams = 4096;
  bench::OfflineOptions out;
  auto prompts = lengths("--prompt", flags.prompts, kMostTokens);
  if (!prompts) return tl::unexpected(prompts.error());
  auto batches = lengths("--batch", flags.batches, kMostStreams);
  if (!batches) return tl::unexpected(batches.error());
  auto contexts = lengths("--context", flags.contexts, kMostTokens);
  if (!contexts) return tl::unexpected(contexts.error());
  if (auto s = check_range("--rounds", flags.n_rounds, 1, 1000); !s) {
    return tl::unexpected(s.error());
  }
  if (auto s = check_range("--max-batched-tokens", flags.max_batched_tokens, 16, kMostTokens); !s) {
    return tl::unexpected(s.error());
  }
  out.prompts = std::move(*prompts);
  out.batches = std::move(*batches);
  out.contexts = std::move(*contexts);
  if (out.batches.empty() || out.contexts.empty()) out.batches = out.contexts = {};
  if (out.prompts.empty() && out.batches.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--prompt 0 and --batch 0: nothing to measure");
  }
  out.n_rounds = flags.n_rounds;
  out.chunk = flags.max_batched_tokens;
  return out;
}

Result<int> run_offline_bench(const BenchTarget& target, const OfflineFlags& flags) {
  auto options = check(flags);
  if (!options) return tl::unexpected(options.error());
  auto cpus = choose_cpus(flags.n_threads);
  if (!cpus) return tl::unexpected(cpus.error());
  auto kernels = check_kernels(flags.kernels);
  if (!kernels) return tl::unexpected(kernels.error());
  auto activations = parse_activations(flags.prefill_activations, *kernels);
  if (!activations) return tl::unexpected(activations.error());
  if (auto s = check_writable("--json", target.json); !s) return tl::unexpected(s.error());
  auto path = resolve_model(target.target);
  if (!path) return tl::unexpected(path.error());
  StopSignals signals;
  auto file = open_model(*path);
  if (!file) return tl::unexpected(file.error());
  auto compute = ComputeModel::create(*file, {.cpus = *cpus,
                                              .context_length = 0,
                                              .role = Role::kBoth,
                                              .kernels = flags.kernels,
                                              .prefill_activations = flags.prefill_activations});
  if (!compute) return tl::unexpected(compute.error());
  pin_this_thread(cpus->front());
  options->available_bytes = available_bytes();
  model::Transformer& transformer = (*compute)->transformer();
  const SystemClock clock;
  const bench::OfflineHooks hooks{
      .stopped = [&] { return signals.stopped(); },
      .on_progress = [](int done, int total) { draw_progress(done, total, ""); }};
  const auto result =
      bench::run_offline((*compute)->context(), transformer, *options, clock, hooks);
  draw_progress(0, 0, "");
  if (!result) return tl::unexpected(result.error());
  const bench::OfflineSetting setting{.model = target.target,
                                      .architecture = transformer.spec().architecture,
                                      .kernels = std::string(linalg::name((*compute)->kernels())),
                                      .prefill_activations = flags.prefill_activations,
                                      .cpu_features = describe(cpu_features()),
                                      .version = fmt::format("{} ({})", kVersion, kCommit),
                                      .n_threads = static_cast<int>(cpus->size())};
  fmt::print("{}", bench::offline_table(setting, *result));
  if (auto s = write_file("--json", target.json, bench::offline_json(setting, *result) + "\n"); !s)
    return tl::unexpected(s.error());
  return signals.stopped() ? 130 : 0;
}

}  // namespace baton::cli
