#include "bench/workload.h"

#include <algorithm>
#include <cmath>

namespace baton::bench {
namespace {

// What a seed is used for, so that one thing drawn more or less doesn't change the others.
enum Stream : uint64_t { kArrivals, kLengths, kOwnTokens, kSharedTokens, kBlocks };

int scaled(int n, double scale) {
  return static_cast<int>(std::clamp(std::round(n * scale), 1.0, double(kMostTokens)));
}

void cut_prompt(std::vector<Segment>& prompt, int most) {
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i].n_tokens = std::min(prompt[i].n_tokens, most);
    most -= prompt[i].n_tokens;
    if (most > 0) continue;
    prompt.resize(i + 1);
    return;
  }
}

}  // namespace

int PlannedRequest::n_prompt() const {
  int64_t n = 0;
  for (const Segment& segment : prompt) n += segment.n_tokens;
  return static_cast<int>(n);
}

std::vector<double> arrivals(int n, double rate, Arrival arrival, uint64_t seed) {
  std::vector<double> out(static_cast<size_t>(n));
  if (rate <= 0 || out.empty()) return out;
  Random random(mix(seed, kArrivals));
  double at = 0;
  for (double& due : out) {
    at += arrival == Arrival::kFixed ? 1.0 : random.exponential();
    due = at;
  }
  const double scale = n / rate / std::max(at, 1e-9);
  for (double& due : out) due *= scale;
  return out;
}

std::vector<PlannedRequest> synthetic(const SyntheticOptions& options) {
  const auto due = arrivals(options.n_requests, options.rate, options.arrival, options.seed);
  Random random(mix(options.seed, kLengths));
  std::vector<PlannedRequest> out;
  out.reserve(due.size());
  for (size_t i = 0; i < due.size(); ++i) {
    PlannedRequest& request = out.emplace_back();
    request.due_s = due[i];
    if (options.shared_prefix > 0) {
      request.prompt.push_back({mix(options.seed, kSharedTokens), options.shared_prefix});
    }
    request.prompt.push_back(
        {mix(mix(options.seed, kOwnTokens), i), options.prompt.sample(random)});
    request.n_output = options.output.sample(random);
  }
  return out;
}

std::vector<PlannedRequest> replay(std::span<const TraceRow> rows, const ReplayOptions& options) {
  const int block = scaled(kTraceBlockTokens, options.length_scale);
  std::vector<PlannedRequest> out;
  out.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const TraceRow& row = rows[i];
    PlannedRequest& request = out.emplace_back();
    request.due_s = row.time_s / options.speed;
    request.n_output = scaled(row.n_output, options.length_scale);
    int left = scaled(row.n_prompt, options.length_scale);
    for (const int64_t id : row.hash_ids) {
      if (left == 0) break;
      const int n = std::min(block, left);
      const uint64_t seed = mix(mix(options.seed, kBlocks), static_cast<uint64_t>(id));
      request.prompt.push_back({seed, n});
      left -= n;
    }
    if (left > 0) request.prompt.push_back({mix(mix(options.seed, kOwnTokens), i), left});
  }
  return out;
}

int fit(std::vector<PlannedRequest>& requests, const Fit& limits) {
  constexpr int kNoLimit = kMostTokens;
  const auto limit = [](int n) { return n > 0 ? n : kNoLimit; };
  int n_cut = 0;
  for (PlannedRequest& request : requests) {
    const int n_prompt = request.n_prompt();
    const int n_output = request.n_output;
    int most_prompt = limit(limits.max_prompt);
    request.n_output = std::min(n_output, limit(limits.max_output));
    if (limits.max_total > 0) {
      const int room = std::max(2, limits.max_total - limits.reserve);
      const int rest = room - std::min(n_prompt, most_prompt);
      request.n_output = std::min(request.n_output, std::max(rest, room / 2));
      most_prompt = std::min(most_prompt, room - request.n_output);
    }
    if (n_prompt > most_prompt) cut_prompt(request.prompt, std::max(1, most_prompt));
    if (n_prompt > most_prompt || n_output != request.n_output) ++n_cut;
  }
  return n_cut;
}

}  // namespace baton::bench
