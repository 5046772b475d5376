#include "bench/online_report.h"

#include "bench/json_numbers.h"

namespace baton::bench {
namespace {

std::string counts(const OnlineSetting& setting, const Summary& s) {
  std::string out = fmt::format("{} requests complete, {} failed", s.n_completed, s.n_failed);
  if (s.n_cancelled > 0) out += fmt::format(", {} cancelled", s.n_cancelled);
  out += fmt::format(" in {:.2f} s, at most {} at once", s.duration_s, s.peak_running);
  if (setting.interrupted) out += " (interrupted)";
  return out + "\n";
}

std::string errors(const Summary& s) {
  std::string out;
  for (const auto& [kind, n] : s.errors) {
    out += fmt::format("  {} x {}: {}\n", n, kind, s.examples.at(kind));
  }
  return out;
}

std::string notes(const OnlineSetting& setting, const Summary& s) {
  std::string out;
  if (setting.n_cut > 0) {
    out += fmt::format("note: {} requests were cut to fit the model\n", setting.n_cut);
  }
  if (s.n_without_usage > 0) {
    out += fmt::format("note: {} answers came without usage: their tokens are chunks with text\n",
                       s.n_without_usage);
  }
  // A fifth of a token's time is where a late client starts to be seen.
  if (s.late_ms.p99 > 0.2 * s.tpot_ms.p50 && s.late_ms.p99 > 5) {
    out += fmt::format(
        "note: requests were sent up to {:.1f} ms late (p99): the client is short of "
        "processor time\n",
        s.late_ms.p99);
  }
  return out;
}

}  // namespace

std::vector<NamedLatency> latencies(const Summary& summary) {
  return {{"ttft", "TTFT", &summary.ttft_ms},
          {"tpot", "TPOT", &summary.tpot_ms},
          {"itl", "ITL", &summary.itl_ms},
          {"e2el", "E2E", &summary.e2e_ms}};
}

std::string online_table(const OnlineSetting& setting, const Summary& s) {
  std::string out =
      fmt::format("{} ({}): {}; {}\n", setting.url, setting.model, setting.load, setting.lengths);
  out += counts(setting, s) + errors(s) + notes(setting, s);
  out += fmt::format("\n{:22}{:12}{:>14}\n", "", "total", "per second");
  const auto row = [&](std::string_view name, int64_t total, double per_s) {
    out += fmt::format("{:16}{:12}{:20.2f}\n", name, total, per_s);
  };
  row("requests", static_cast<int64_t>(s.n_completed), s.requests_per_s);
  if (s.n_good) row("within SLO", static_cast<int64_t>(*s.n_good), s.good_per_s);
  row("prompt tokens", s.prompt_tokens, s.total_tokens_per_s - s.output_tokens_per_s);
  row("output tokens", s.output_tokens, s.output_tokens_per_s);
  out += fmt::format("\n{:8}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "ms", "mean", "std",
                     "min", "p50", "p90", "p99", "max");
  for (const auto& [key, label, d] : latencies(s)) {
    out += fmt::format("{:8}{:10.2f}{:10.2f}{:10.2f}{:10.2f}{:10.2f}{:10.2f}{:10.2f}\n", label,
                       d->mean, d->std, d->min, d->p50, d->p90, d->p99, d->max);
  }
  return out;
}

std::string online_json(const OnlineSetting& setting, const Summary& s, const LoadResult& result,
                        const Slo& slo) {
  api::JsonWriter json;
  const auto number = [&](std::string_view key, double value) {
    json.key(key);
    write_number(json, value);
  };
  const auto count = [&](std::string_view key, auto n) {
    json.key(key).integer(static_cast<int64_t>(n));
  };
  json.begin_object().key("kind").string("online").key("url").string(setting.url);
  json.key("model").string(setting.model).key("load").string(setting.load);
  json.key("lengths").string(setting.lengths).key("version").string(setting.version);
  json.key("interrupted").boolean(setting.interrupted);
  count("seed", setting.seed);
  count("warm_up", setting.n_warm_up);
  count("cut", setting.n_cut);
  count("completed", s.n_completed);
  count("failed", s.n_failed);
  count("cancelled", s.n_cancelled);
  number("duration", s.duration_s);
  count("total_input_tokens", s.prompt_tokens);
  count("total_output_tokens", s.output_tokens);
  count("without_usage", s.n_without_usage);
  number("request_throughput", s.requests_per_s);
  number("output_throughput", s.output_tokens_per_s);
  number("total_token_throughput", s.total_tokens_per_s);
  if (s.steady_output_tokens_per_s) {
    number("steady_output_throughput", *s.steady_output_tokens_per_s);
  }
  count("max_concurrent_requests", s.peak_running);
  if (s.n_good) {
    count("good", *s.n_good);
    number("request_goodput", s.good_per_s);
    json.key("slo_ms").begin_object();
    if (slo.ttft_ms) number("ttft", *slo.ttft_ms);
    if (slo.tpot_ms) number("tpot", *slo.tpot_ms);
    if (slo.e2e_ms) number("e2e", *slo.e2e_ms);
    json.end_object();
  }
  for (const auto& [key, label, d] : latencies(s)) {
    for (const auto& [name, value] : {std::pair<const char*, double>{"mean", d->mean},
                                      {"median", d->p50},
                                      {"std", d->std},
                                      {"p50", d->p50},
                                      {"p90", d->p90},
                                      {"p99", d->p99},
                                      {"min", d->min},
                                      {"max", d->max}}) {
      number(fmt::format("{}_{}_ms", name, key), value);
    }
  }
  number("p99_late_ms", s.late_ms.p99);
  json.key("errors").begin_object();
  for (const auto& [kind, n] : s.errors) count(kind, n);
  json.end_object().key("requests").begin_array();
  for (const RequestRecord& record : result.records) {
    json.begin_object();
    number("start_s", static_cast<double>(record.start_ns - result.start_ns) * 1e-9);
    count("prompt_tokens", record.prompt_tokens);
    count("output_tokens", record.output_tokens);
    count("chunks", record.chunk_ns.size());
    if (!record.chunk_ns.empty()) {
      number("ttft_ms", record.ttft_s() * 1e3);
      number("tpot_ms", record.tpot_s() * 1e3);
      number("e2e_ms", record.e2e_s() * 1e3);
    }
    if (!record.ok()) json.key("error").string(record.error_kind);
    json.end_object();
  }
  json.end_array().end_object();
  return json.take();
}

}  // namespace baton::bench
