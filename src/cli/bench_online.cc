// baton bench http://HOST:PORT: load on a server.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "bench/html_report.h"
#include "bench/online_report.h"
#include "bench/server_info.h"
#include "bench/trace.h"
#include "cli/bench_modes.h"
#include "cli/flag_help.h"
#include "cli/size.h"
#include "cli/stop_signals.h"
#include "cli/version.h"

namespace baton::cli {
namespace {

// What a chat template or BOS adds to a prompt, where the context has to hold it.
constexpr int kTemplateTokens = 64;
constexpr int kFewTokens = 8;

Status check_number(const char* flag, double value, double low, double high) {
  if (value >= low && value <= high) return {};
  return fail(ErrorCode::kInvalidArgument, "{} {}: must be between {} and {}", flag, value, low,
              high);
}

Status check_numbers(const OnlineFlags& f) {
  constexpr int kMostTokens = bench::kMostTokens;
  for (const auto& [flag, value, low, high] :
       {std::tuple{"--concurrency", f.concurrency, 0, 1 << 20},
        {"--requests", f.n_requests, 1, 1 << 24},
        {"--shared-prefix", f.shared_prefix, 0, kMostTokens},
        {"--max-prompt-tokens", f.max_prompt_tokens, 0, kMostTokens},
        {"--max-output-tokens", f.max_output_tokens, 0, kMostTokens},
        {"--max-model-len", f.max_model_len, 0, kMostTokens},
        {"--warmup", f.n_warm_up, 0, 1 << 20}}) {
    if (auto s = check_range(flag, value, low, high); !s) return s;
  }
  for (const auto& [flag, value, low, high] : {std::tuple{"--rate", f.rate, 0.0, 1e6},
                                               {"--speed", f.speed, 1e-3, 1e6},
                                               {"--length-scale", f.length_scale, 1e-3, 1e3},
                                               {"--temperature", f.temperature, 0.0, 2.0}}) {
    if (auto s = check_number(flag, value, low, high); !s) return s;
  }
  return {};
}

/// "http://HOST:PORT", whatever stands behind it left out if it is what people append to it.
Result<std::string> origin_of(std::string url) {
  if (!url.starts_with("http://")) {
    return fail(ErrorCode::kInvalidArgument, "'{}' is not of the form http://HOST:PORT", url);
  }
  for (const std::string_view tail : {"/", "/v1"}) {
    if (url.ends_with(tail)) url.resize(url.size() - tail.size());
  }
  return url;
}

Status check_ids(const OnlineFlags& flags, bench::PromptOptions& out) {
  if (flags.chat && flags.token_ids) {
    return fail(ErrorCode::kInvalidArgument, "--token-ids: a chat's messages are text");
  }
  const auto range = bench::parse_lengths("--id-range", flags.id_range, 1);
  if (!range || range->kind != bench::Lengths::Kind::kUniform) {
    return fail(ErrorCode::kInvalidArgument, "--id-range '{}': use first-last, as in 1000-20000",
                flags.id_range);
  }
  out.first_id = range->low;
  out.n_ids = static_cast<uint32_t>(range->high - range->low) + 1;
  return {};
}

Status check_load(const OnlineFlags& flags, OnlineSettings& out) {
  auto prompt =
      bench::parse_lengths("--prompt-tokens", flags.prompt_tokens, bench::kShareGptPrompt);
  if (!prompt) return tl::unexpected(prompt.error());
  auto output =
      bench::parse_lengths("--output-tokens", flags.output_tokens, bench::kShareGptOutput);
  if (!output) return tl::unexpected(output.error());
  if (flags.arrival != "poisson" && flags.arrival != "fixed") {
    return fail(ErrorCode::kInvalidArgument, "--arrival '{}': use poisson or fixed", flags.arrival);
  }
  const bool poisson = flags.arrival == "poisson";
  out.synthetic = {.n_requests = flags.n_requests,
                   .rate = flags.rate,
                   .arrival = poisson ? bench::Arrival::kPoisson : bench::Arrival::kFixed,
                   .prompt = *prompt,
                   .output = *output,
                   .shared_prefix = flags.shared_prefix,
                   .seed = flags.seed};
  out.trace = flags.trace;
  out.replay = {.speed = flags.speed, .length_scale = flags.length_scale, .seed = flags.seed};
  out.most_rows = flags.n_requests_given ? static_cast<size_t>(flags.n_requests) : 0;
  out.fit = {.max_prompt = flags.max_prompt_tokens,
             .max_output = flags.max_output_tokens,
             .max_total = flags.max_model_len,
             .reserve = flags.chat        ? kTemplateTokens
                        : flags.token_ids ? 0
                                          : kFewTokens};
  out.load.path = flags.chat ? "/v1/chat/completions" : "/v1/completions";
  out.load.max_running = flags.concurrency;
  return {};
}

/// A connection for each request that may be under way.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<std::vector<bench::PlannedRequest>> plan(const OnlineSettings& settings) {
  if (settings.trace.empty()) return bench::synthetic(settings.synthetic);
  auto rows = bench::read_trace(settings.trace, settings.most_rows);
  if (!rows) return tl::unexpected(rows.error());
  return bench::replay(*rows, settings.replay);
}

std::string describe_load(const OnlineFlags& flags) {
  std::string out;
  if (!flags.trace.empty()) {
    out = fmt::format("{} at {} x its speed", flags.trace, flags.speed);
  } else if (flags.rate > 0) {
    out = fmt::format("{} arrivals, {} requests/s",
                      flags.arrival == "poisson" ? "Poisson" : "evenly spaced", flags.rate);
  } else {
    out = "all at once";
  }
  return flags.concurrency > 0 ? fmt::format("{}, {} running at most", out, flags.concurrency)
                               : out;
}

std::string describe_lengths(const OnlineFlags& flags) {
  if (!flags.trace.empty()) return fmt::format("its lengths x {}", flags.length_scale);
  std::string out = fmt::format("prompts {} tokens", flags.prompt_tokens);
  if (flags.shared_prefix > 0) out += fmt::format(" behind {} shared", flags.shared_prefix);
  return out + fmt::format(", answers {} tokens", flags.output_tokens);
}

void draw(const bench::LoadProgress& p) {
  std::string more = fmt::format(", {} running, {:.1f} s", p.n_running, p.seconds);
  if (p.n_failed > 0) more += fmt::format(", {} failed", p.n_failed);
  draw_progress(static_cast<int64_t>(p.n_done), static_cast<int64_t>(p.n_total), more);
}

/// A client, the server's word on itself, and a run that signals end.
class Session {
 public:
  Session(OnlineSettings settings, std::unique_ptr<net::HttpClient> client, StopSignals& signals)
      : settings_(std::move(settings)), signals_(signals), client_(std::move(client)) {}

  /// Fills in what the server says where the flags don't.
  Status ask() {
    auto info = bench::ask_server(*client_);
    if (!info) return tl::unexpected(info.error());
    if (settings_.prompt.model.empty()) settings_.prompt.model = info->model;
    if (settings_.fit.max_total == 0) settings_.fit.max_total = info->max_model_len;
    return {};
  }

  /// Requests like the real ones, of other tokens. The first failure is the error.
  Status warm_up(int n, std::vector<bench::PlannedRequest> like) {
    like.resize(std::min(like.size(), static_cast<size_t>(n)));
    for (size_t i = 0; i < like.size(); ++i) {
      like[i].due_s = 0;
      for (bench::Segment& segment : like[i].prompt) {
        segment.seed = bench::mix(segment.seed, 0x3A27);
      }
    }
    bench::LoadOptions options = settings_.load;
    options.max_running = 1;
    const auto result = run(like, options, {});
    for (const bench::RequestRecord& record : result.records) {
      if (record.ok() || record.error_kind == "cancelled") continue;
      return fail(ErrorCode::kUnavailable, "the first request to {} failed: {}: {}",
                  client_->origin(), record.error_kind, record.error);
    }
    return {};
  }

  bench::LoadResult run(std::span<const bench::PlannedRequest> requests,
                        const bench::LoadOptions& options,
                        std::function<void(const bench::LoadProgress&)> on_progress) {
    bench::LoadRun load(*client_, options, clock_);
    signals_.on_stop([&] { load.stop(); });
    auto result = load.run(
        requests,
        {.body = [&](size_t i) { return bench::request_body(requests[i], settings_.prompt); },
         .on_progress = std::move(on_progress)});
    signals_.on_stop({});
    draw_progress(0, 0, "");
    return result;
  }

  [[nodiscard]] const OnlineSettings& settings() const { return settings_; }
  [[nodiscard]] bool stopped() const { return signals_.stopped(); }

 private:
  OnlineSettings settings_;
  StopSignals& signals_;
  SystemClock clock_;
  std::unique_ptr<net::HttpClient> client_;
};

}  // namespace

Result<OnlineSettings> check(const BenchTarget& target, const OnlineFlags& flags) {
  OnlineSettings out;
  auto origin = origin_of(target.target);
  if (!origin) return tl::unexpected(origin.error());
  out.origin = std::move(*origin);
  if (auto s = check_numbers(flags); !s) return tl::unexpected(s.error());
  if (auto s = check_load(flags, out); !s) return tl::unexpected(s.error());
  if (auto s = check_ids(flags, out.prompt); !s) return tl::unexpected(s.error());
  auto slo = bench::parse_slo(flags.slo);
  if (!slo) return tl::unexpected(slo.error());
  out.slo = *slo;
  auto timeout = parse_duration("--timeout", flags.timeout);
  if (!timeout) return tl::unexpected(timeout.error());
  out.load.timeout = *timeout;
  out.prompt.model = flags.model;
  out.prompt.chat = flags.chat;
  out.prompt.token_ids = flags.token_ids;
  out.prompt.temperature = flags.temperature;
  out.prompt.ignore_eos = !flags.stop_at_eos;
  return out;
}

Result<int> run_online_bench(const BenchTarget& target, const OnlineFlags& flags) {
  auto checked = check(target, flags);
  if (!checked) return tl::unexpected(checked.error());
  auto requests = plan(*checked);
  if (!requests) return tl::unexpected(requests.error());
  if (auto s = check_writable("--json", target.json); !s) return tl::unexpected(s.error());
  if (auto s = check_writable("--html", flags.html); !s) return tl::unexpected(s.error());
  raise_descriptor_limit();
  net::HttpClientOptions client_options;
  client_options.origin = checked->origin;
  client_options.max_idle_connections = 4096;
  const char* key = std::getenv("OPENAI_API_KEY");
  client_options.bearer_token = !flags.api_key.empty() ? flags.api_key : key != nullptr ? key : "";
  StopSignals signals;
  auto client = net::HttpClient::create(std::move(client_options));
  if (!client) return tl::unexpected(client.error());
  Session session(std::move(*checked), std::move(*client), signals);
  if (auto s = session.ask(); !s) return tl::unexpected(s.error());
  const OnlineSettings& settings = session.settings();
  bench::OnlineSetting setting{.url = settings.origin,
                               .model = settings.prompt.model,
                               .load = describe_load(flags),
                               .lengths = describe_lengths(flags),
                               .version = fmt::format("baton {} ({})", kVersion, kCommit),
                               .seed = flags.seed,
                               .n_warm_up = flags.n_warm_up,
                               .n_cut = bench::fit(*requests, settings.fit)};
  if (auto s = session.warm_up(flags.n_warm_up, *requests); !s) return tl::unexpected(s.error());
  const bench::LoadResult result = session.run(*requests, settings.load, draw);
  setting.interrupted = session.stopped();
  const bench::Summary summary = bench::summarize(result, settings.slo);
  fmt::print("{}", bench::online_table(setting, summary));
  const std::string json = bench::online_json(setting, summary, result, settings.slo) + "\n";
  if (auto s = write_file("--json", target.json, json); !s) return tl::unexpected(s.error());
  const std::string html = bench::html_report(setting, summary, result);
  if (auto s = write_file("--html", flags.html, html); !s) return tl::unexpected(s.error());
  if (setting.interrupted) return 130;
  return summary.n_completed > 0 ? 0 : 1;
}

}  // namespace baton::cli
