#include "cli/engine_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "base/cpu.h"
#include "cli/flag_help.h"
#include "cli/loaded_model.h"
#include "cli/size.h"

namespace baton::cli {
namespace {

// From so many uncached prompt tokens on, a prompt is worth the prefill class's panels.
constexpr int kDefaultPrefillMinTokens = 128;

Status check_numbers(const EngineFlags& flags) {
  if (auto s = check_range("--context", flags.context, 0, 1 << 24); !s) return s;
  if (flags.context == 1) {
    return fail(ErrorCode::kInvalidArgument,
                "--context 1: must be at least 2 (a prompt and an answer), or 0");
  }
  if (auto s = check_range("--max-batch", flags.max_batch, 1, 4096); !s) return s;
  if (flags.mixed_prefill_tokens != 0) {
    if (auto s = check_range("--mixed-prefill-tokens", flags.mixed_prefill_tokens, 16, 1 << 20);
        !s) {
      return s;
    }
  }
  return check_range("--max-batched-tokens", flags.max_batched_tokens, 16, 1 << 20);
}

/// Before anything is loaded: the kernels are those that an engine will find here too.
Status check_activations(const std::string& text) {
  if (text == "int16") return {};  // which all kernels have
  const auto kernels = chosen_kernels();
  if (!kernels) return tl::unexpected(kernels.error());
  if (auto type = parse_activations(text, *kernels); !type) return tl::unexpected(type.error());
  return {};
}

/// The cores of this process, or of them the CPUs in `text`.
Result<std::vector<std::vector<int>>> parse_cpus(const std::string& text) {
  auto cores = allowed_cores();
  if (text.empty()) return cores;
  auto wanted = parse_cpu_list(text);
  if (!wanted) return fail(ErrorCode::kInvalidArgument, "--cpus: {}", wanted.error().message);
  std::vector<int> missing = *wanted;
  for (auto& core : cores) {
    std::erase_if(core, [&](int cpu) {
      return std::find(wanted->begin(), wanted->end(), cpu) == wanted->end();
    });
    std::erase_if(missing,
                  [&](int cpu) { return std::find(core.begin(), core.end(), cpu) != core.end(); });
  }
  if (!missing.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--cpus '{}': CPU {} is not one this process may use",
                text, missing.front());
  }
  std::erase_if(cores, [](const auto& core) { return core.empty(); });
  return cores;
}

std::string joined(const std::vector<int>& numbers) {
  std::string out;
  for (const int number : numbers) out += (out.empty() ? "" : ",") + std::to_string(number);
  return out;
}

}  // namespace

void add_engine_flags(CLI::App& command, EngineFlags& flags) {
  const FlagAdder add{command};
  add("--served-model-name", flags.served_model_names, "name(s) clients use; the first is shown");
  add("--context", flags.context, "longest prompt + answer in tokens; 0 = the model's own");
  add("--max-batch", flags.max_batch, "sequences that run at once on an engine");
  add("--max-batched-tokens", flags.max_batched_tokens, "tokens of one step");
  add("--mixed-prefill-tokens", flags.mixed_prefill_tokens,
      "of them for prompts while sequences decode, which wait for them; 0 = 64 (128 with matrix "
      "units)");
  add("--kv-memory", flags.kv_memory, "memory for the KV cache of an engine");
  add("--remote-prefill-min-tokens", flags.remote_prefill_min_tokens,
      "uncached prompt tokens from which prefill kernels and prefill engines are used: auto or a "
      "number");
  add("--kv-dtype", flags.kv_dtype, "auto, bf16 or f32");
  add("--prefill-activations", flags.prefill_activations,
      "what prefill kernels multiply quantised weights with: int16, or int8: faster, less exact");
  command.add_flag("--exact-prefix", flags.exact_prefix,
                   "cache only what keeps a request's bits the same with and without the cache");
  add("--packed-cache", flags.packed_cache,
      "on: packed weights are kept in the cache folder for the next start; or off");
  add("--lease", flags.lease, "how long an engine holds blocks for KV whose sender is silent");
  add("--join-timeout", flags.join_timeout, "how long an engine waits for the others of its world");
  add("--cpus", flags.cpus, "CPUs to compute on, as in 0-3,8; default all");
  add("--trace", flags.trace, "write a Chrome trace to this file");
  add("--log-level", flags.log_level, "trace, debug, info, warn, error or off");
  add("--log-format", flags.log_format, "text or json");
}

Result<EngineSettings> check(const EngineFlags& flags) {
  EngineSettings settings;
  if (auto s = check_numbers(flags); !s) return tl::unexpected(s.error());
  auto kv_bytes = parse_bytes("--kv-memory", flags.kv_memory);
  if (!kv_bytes) return tl::unexpected(kv_bytes.error());
  settings.kv_bytes = *kv_bytes;
  auto min_tokens = parse_min_tokens(flags.remote_prefill_min_tokens);
  if (!min_tokens) return tl::unexpected(min_tokens.error());
  settings.prefill_min_tokens = *min_tokens;
  if (flags.kv_dtype != "auto" && flags.kv_dtype != "bf16" && flags.kv_dtype != "f32") {
    return fail(ErrorCode::kInvalidArgument, "--kv-dtype '{}': use auto, bf16 or f32",
                flags.kv_dtype);
  }
  if (auto s = check_activations(flags.prefill_activations); !s) return tl::unexpected(s.error());
  if (flags.packed_cache != "on" && flags.packed_cache != "off") {
    return fail(ErrorCode::kInvalidArgument, "--packed-cache '{}': use on or off",
                flags.packed_cache);
  }
  auto lease = parse_duration("--lease", flags.lease);
  if (!lease) return tl::unexpected(lease.error());
  if (lease->count() == 0) {
    return fail(ErrorCode::kInvalidArgument, "--lease '{}': must be longer than nothing",
                flags.lease);
  }
  settings.lease = *lease;
  auto join_timeout = parse_duration("--join-timeout", flags.join_timeout);
  if (!join_timeout) return tl::unexpected(join_timeout.error());
  settings.join_timeout = *join_timeout;
  auto cores = parse_cpus(flags.cpus);
  if (!cores) return tl::unexpected(cores.error());
  settings.cores = std::move(*cores);
  return settings;
}

std::vector<std::string> engine_arguments(const EngineFlags& flags, const EnginePlace& place) {
  std::vector<std::string> out{"engine"};
  // With '=' a value may begin with a dash.
  const auto add = [&](std::string_view flag, const std::string& value) {
    out.push_back(fmt::format("{}={}", flag, value));
  };
  add("--model", flags.model);
  add("--role", std::string(name(place.role)));
  add("--name", place.name);
  add("--port", "0");
  add("--cpus", joined(place.cpus));
  add("--ready-fd", std::to_string(place.ready_fd));
  add("--lifeline-fd", std::to_string(place.lifeline_fd));
  add("--drain-timeout", place.drain_timeout);
  for (const std::string& served : flags.served_model_names) add("--served-model-name", served);
  add("--context", std::to_string(flags.context));
  add("--max-batch", std::to_string(flags.max_batch));
  add("--max-batched-tokens", std::to_string(flags.max_batched_tokens));
  add("--mixed-prefill-tokens", std::to_string(flags.mixed_prefill_tokens));
  add("--kv-memory", flags.kv_memory);
  add("--remote-prefill-min-tokens", flags.remote_prefill_min_tokens);
  add("--kv-dtype", flags.kv_dtype);
  add("--prefill-activations", flags.prefill_activations);
  if (flags.exact_prefix) out.emplace_back("--exact-prefix");
  add("--packed-cache", flags.packed_cache);
  add("--lease", flags.lease);
  add("--join-timeout", flags.join_timeout);
  if (!flags.trace.empty()) add("--trace", flags.trace);
  add("--log-level", flags.log_level);
  add("--log-format", flags.log_format);
  return out;
}

Result<Role> parse_role(const std::string& text) {
  for (const Role role : {Role::kPrefill, Role::kDecode, Role::kBoth}) {
    if (text == name(role)) return role;
  }
  return fail(ErrorCode::kInvalidArgument, "--role '{}': use prefill, decode or both", text);
}

Result<int> parse_min_tokens(const std::string& text) {
  if (text == "auto") return kDefaultPrefillMinTokens;
  int value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size() || value < 1) {
    return fail(ErrorCode::kInvalidArgument,
                "--remote-prefill-min-tokens '{}': use auto or a number from 1 on", text);
  }
  return value;
}

}  // namespace baton::cli
