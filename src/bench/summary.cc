#include "bench/summary.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace baton::bench {
namespace {

double since_start_s(const LoadResult& result, int64_t ns) {
  return static_cast<double>(ns - result.start_ns) * 1e-9;
}

void note_error(Summary& out, const RequestRecord& record) {
  if (record.error_kind == "cancelled") {
    ++out.n_cancelled;
    return;
  }
  ++out.n_failed;
  ++out.errors[record.error_kind];
  out.examples.try_emplace(record.error_kind, record.error);
}

std::optional<double> steady_rate(const LoadResult& result) {
  int64_t begin_ns = std::numeric_limits<int64_t>::min();
  int64_t end_ns = std::numeric_limits<int64_t>::max();
  for (const RequestRecord& record : result.records) {
    if (!record.ok()) continue;
    begin_ns = std::max(begin_ns, record.chunk_ns.front());
    end_ns = std::min(end_ns, record.chunk_ns.back());
  }
  if (begin_ns == std::numeric_limits<int64_t>::min() || begin_ns >= end_ns) return std::nullopt;
  double tokens = 0;
  for (const RequestRecord& record : result.records) {
    if (!record.ok()) continue;
    const auto inside = std::count_if(record.chunk_ns.begin(), record.chunk_ns.end(),
                                      [&](int64_t ns) { return begin_ns < ns && ns <= end_ns; });
    tokens += static_cast<double>(inside) * static_cast<double>(record.output_tokens) /
              static_cast<double>(record.chunk_ns.size());
  }
  return tokens / (static_cast<double>(end_ns - begin_ns) * 1e-9);
}

}  // namespace

bool Slo::kept_by(const RequestRecord& record) const {
  const auto keeps = [](const std::optional<double>& limit_ms, double seconds) {
    return !limit_ms || seconds * 1e3 <= *limit_ms;
  };
  return keeps(ttft_ms, record.ttft_s()) && keeps(tpot_ms, record.tpot_s()) &&
         keeps(e2e_ms, record.e2e_s());
}

Result<Slo> parse_slo(std::string_view text) {
  Slo out;
  const auto wrong = [&](std::string_view part) {
    return fail(ErrorCode::kInvalidArgument,
                "--slo '{}': '{}' is not one of ttft=MS, tpot=MS, e2e=MS, each once", text, part);
  };
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t equals = part.find('=');
    if (equals == part.npos) return wrong(part);
    const std::string_view name = part.substr(0, equals);
    const std::string_view number = part.substr(equals + 1);
    std::optional<double>* limit = nullptr;
    if (name == "ttft") limit = &out.ttft_ms;
    if (name == "tpot") limit = &out.tpot_ms;
    if (name == "e2e" || name == "e2el") limit = &out.e2e_ms;
    double ms = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), ms);
    const bool whole = error == std::errc() && end == number.data() + number.size();
    if (limit == nullptr || *limit || !whole || !std::isfinite(ms) || ms < 0) return wrong(part);
    *limit = ms;
  }
  return out;
}

Summary summarize(const LoadResult& result, const Slo& slo) {
  Summary out;
  std::vector<double> ttft;
  std::vector<double> tpot;
  std::vector<double> itl;
  std::vector<double> e2e;
  std::vector<double> late;
  size_t n_good = 0;
  for (const RequestRecord& record : result.records) {
    late.push_back(static_cast<double>(record.late_ns) * 1e-6);
    if (!record.ok()) {
      note_error(out, record);
      continue;
    }
    ++out.n_completed;
    out.prompt_tokens += record.prompt_tokens;
    out.output_tokens += record.output_tokens;
    out.n_without_usage += record.has_usage ? 0 : 1;
    n_good += slo.kept_by(record) ? 1 : 0;
    ttft.push_back(record.ttft_s() * 1e3);
    e2e.push_back(record.e2e_s() * 1e3);
    if (record.output_tokens > 1) tpot.push_back(record.tpot_s() * 1e3);
    for (size_t i = 1; i < record.chunk_ns.size(); ++i) {
      itl.push_back(static_cast<double>(record.chunk_ns[i] - record.chunk_ns[i - 1]) * 1e-6);
    }
  }
  out.duration_s = since_start_s(result, result.end_ns);
  const double per_s = out.duration_s > 0 ? 1 / out.duration_s : 0;
  out.requests_per_s = static_cast<double>(out.n_completed) * per_s;
  out.output_tokens_per_s = static_cast<double>(out.output_tokens) * per_s;
  out.total_tokens_per_s = static_cast<double>(out.prompt_tokens + out.output_tokens) * per_s;
  out.steady_output_tokens_per_s = steady_rate(result);
  if (!slo.empty()) {
    out.n_good = n_good;
    out.good_per_s = static_cast<double>(n_good) * per_s;
  }
  out.ttft_ms = describe(std::move(ttft));
  out.tpot_ms = describe(std::move(tpot));
  out.itl_ms = describe(std::move(itl));
  out.e2e_ms = describe(std::move(e2e));
  out.late_ms = describe(std::move(late));
  for (const auto& [time, running] : running_over_time(result)) {
    out.peak_running = std::max(out.peak_running, static_cast<size_t>(running));
  }
  return out;
}

std::vector<std::pair<double, int>> running_over_time(const LoadResult& result) {
  std::vector<std::pair<int64_t, int>> changes;
  for (const RequestRecord& record : result.records) {
    changes.emplace_back(record.start_ns, 1);
    changes.emplace_back(record.end_ns, -1);
  }
  // Ends before starts of the same moment.
  std::sort(changes.begin(), changes.end());
  std::vector<std::pair<double, int>> out;
  int running = 0;
  for (const auto& [at_ns, change] : changes) {
    running += change;
    out.emplace_back(since_start_s(result, at_ns), running);
  }
  return out;
}

std::vector<double> tokens_over_time(const LoadResult& result, double width_s) {
  std::vector<double> out;
  for (const RequestRecord& record : result.records) {
    if (!record.ok()) continue;
    const double tokens =
        static_cast<double>(record.output_tokens) / static_cast<double>(record.chunk_ns.size());
    for (const int64_t ns : record.chunk_ns) {
      const auto at = static_cast<size_t>(std::max(0.0, since_start_s(result, ns)) / width_s);
      if (at >= out.size()) out.resize(at + 1);
      out[at] += tokens / width_s;
    }
  }
  return out;
}

}  // namespace baton::bench
