#include "cli/serve_options.h"

#include <algorithm>
#include <charconv>

#include "base/cpu.h"
#include "cli/size.h"

namespace baton::cli {
namespace {

// From so many uncached prompt tokens on, a prompt is worth the prefill class's panels.
constexpr int kDefaultPrefillMinTokens = 128;

Status check_numbers(const ServeFlags& flags) {
  const auto in_range = [](const char* flag, int value, int low, int high) -> Status {
    if (value >= low && value <= high) return {};
    return fail(ErrorCode::kInvalidArgument, "{} {}: must be between {} and {}", flag, value, low,
                high);
  };
  if (auto s = in_range("--port", flags.port, 0, 65535); !s) return s;
  if (auto s = in_range("--context", flags.context, 0, 1 << 24); !s) return s;
  if (flags.context == 1) {
    return fail(ErrorCode::kInvalidArgument,
                "--context 1: must be at least 2 (a prompt and an answer), or 0");
  }
  if (flags.api_key_given && flags.api_key.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "--api-key '' (or BATON_API_KEY): empty; leave it out for a server without a key");
  }
  if (auto s = in_range("--max-batch", flags.max_batch, 1, 4096); !s) return s;
  return in_range("--max-batched-tokens", flags.max_batched_tokens, 16, 1 << 20);
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

Result<std::vector<int>> parse_cpus(const std::string& text) {
  const auto allowed = allowed_cpus();
  if (text.empty()) return allowed;
  auto cpus = parse_cpu_list(text);
  if (!cpus) {
    return fail(ErrorCode::kInvalidArgument, "--cpus: {}", cpus.error().message);
  }
  for (const int cpu : *cpus) {
    if (std::find(allowed.begin(), allowed.end(), cpu) == allowed.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  "--cpus '{}': CPU {} is not one this process may use", text, cpu);
    }
  }
  return cpus;
}

}  // namespace

Result<ServeOptions> check(ServeFlags flags) {
  ServeOptions options;
  if (auto s = check_numbers(flags); !s) return tl::unexpected(s.error());
  auto engines = parse_engines(flags.engines);
  if (!engines) return tl::unexpected(engines.error());
  options.engines = *engines;
  if (engines->both != 1 || engines->prefill != 0 || engines->decode != 0) {
    return fail(ErrorCode::kInvalidArgument,
                "--engines '{}': only 1B (one engine that does both) is there so far",
                flags.engines);
  }
  auto kv_bytes = parse_bytes("--kv-memory", flags.kv_memory);
  if (!kv_bytes) return tl::unexpected(kv_bytes.error());
  options.kv_bytes = *kv_bytes;
  auto body_bytes = parse_bytes("--max-body", flags.max_body);
  if (!body_bytes) return tl::unexpected(body_bytes.error());
  options.max_body_bytes = *body_bytes;
  auto drain = parse_duration("--drain-timeout", flags.drain_timeout);
  if (!drain) return tl::unexpected(drain.error());
  options.drain_timeout = *drain;
  auto min_tokens = parse_min_tokens(flags.remote_prefill_min_tokens);
  if (!min_tokens) return tl::unexpected(min_tokens.error());
  options.prefill_min_tokens = *min_tokens;
  if (flags.kv_dtype != "auto" && flags.kv_dtype != "bf16" && flags.kv_dtype != "f32") {
    return fail(ErrorCode::kInvalidArgument, "--kv-dtype '{}': use auto, bf16 or f32",
                flags.kv_dtype);
  }
  auto cpus = parse_cpus(flags.cpus);
  if (!cpus) return tl::unexpected(cpus.error());
  options.cpus = std::move(*cpus);
  options.flags = std::move(flags);
  return options;
}

}  // namespace baton::cli
