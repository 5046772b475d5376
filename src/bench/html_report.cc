#include "bench/html_report.h"

#include <algorithm>

#include "base/result.h"
#include "bench/svg_plot.h"

namespace baton::bench {
namespace {

using Shape = PlotSeries::Shape;

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>baton bench</title><style>
:root{--ink:#1d2129;--muted:#5d6570;--paper:#ffffff;--grid:#e3e6ea;--series-1:#2a6fdb;--series-2:#d9622b;--series-3:#2b8a57}
@media (prefers-color-scheme:dark){:root{--ink:#e8eaee;--muted:#9aa3ad;--paper:#15181d;--grid:#2c3138;--series-1:#6ea8ff;--series-2:#f0935f;--series-3:#5fc48f}}
body{font:14px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:24px;max-width:1300px}
pre{font:13px/1.45 ui-monospace,monospace;overflow-x:auto}
.plots{display:flex;flex-wrap:wrap;gap:20px}
svg{max-width:100%;height:auto}
svg text{font:11px system-ui,sans-serif;fill:var(--muted)}
svg .title{font-size:13px;font-weight:600;fill:var(--ink)}
.grid{stroke:var(--grid)}
.line1,.line2,.line3{fill:none;stroke-width:1.8}
.line1{stroke:var(--series-1)}.line2{stroke:var(--series-2)}.line3{stroke:var(--series-3)}
.dot1,.dot2,.dot3{fill-opacity:.65}
.dot1{fill:var(--series-1)}.dot2{fill:var(--series-2)}.dot3{fill:var(--series-3)}
</style></head><body>
)";

/// Of ascending samples the share that is not above each.
PlotSeries cumulative(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  PlotSeries out{"", Shape::kSteps, {}};
  const auto n = static_cast<double>(samples.size());
  if (!samples.empty()) out.points.emplace_back(0, 0);
  for (size_t i = 0; i < samples.size(); ++i) {
    out.points.emplace_back(samples[i], static_cast<double>(i + 1) / n);
  }
  return out;
}

std::string distributions(const LoadResult& result) {
  std::vector<double> ttft;
  std::vector<double> itl;
  for (const RequestRecord& record : result.records) {
    if (!record.ok()) continue;
    ttft.push_back(record.ttft_s() * 1e3);
    for (size_t i = 1; i < record.chunk_ns.size(); ++i) {
      itl.push_back(static_cast<double>(record.chunk_ns[i] - record.chunk_ns[i - 1]) * 1e-6);
    }
  }
  return svg_plot({"Time to first token", "ms", "share of requests", true},
                  {cumulative(std::move(ttft))}) +
         svg_plot({"Inter-token latency", "ms", "share of gaps", true},
                  {cumulative(std::move(itl))});
}

std::string latency_over_time(const LoadResult& result) {
  PlotSeries ttft{"TTFT", Shape::kDots, {}};
  PlotSeries e2e{"E2E", Shape::kDots, {}};
  for (const RequestRecord& record : result.records) {
    if (!record.ok()) continue;
    const double at_s = static_cast<double>(record.start_ns - result.start_ns) * 1e-9;
    ttft.points.emplace_back(at_s, record.ttft_s() * 1e3);
    e2e.points.emplace_back(at_s, record.e2e_s() * 1e3);
  }
  return svg_plot({"Latency by time of sending", "s", "ms", false}, {ttft, e2e}) +
         svg_plot({"Time to first token by time of sending", "s", "ms", false}, {ttft});
}

std::string throughput_over_time(const LoadResult& result, double duration_s) {
  // Up to 60 intervals, of round numbers of seconds.
  const double width_s = std::max(0.1, tick_step(std::max(duration_s, 1e-3), 60));
  PlotSeries tokens{"", Shape::kSteps, {}};
  const std::vector<double> rates = tokens_over_time(result, width_s);
  for (size_t i = 0; i < rates.size(); ++i) {
    tokens.points.emplace_back(width_s * static_cast<double>(i), rates[i]);
  }
  if (!rates.empty()) {
    tokens.points.emplace_back(width_s * static_cast<double>(rates.size()), rates.back());
  }
  PlotSeries running{"", Shape::kSteps, {}};
  for (const auto& [at_s, n] : running_over_time(result)) running.points.emplace_back(at_s, n);
  return svg_plot({"Output tokens", "s", "tokens/s", false}, {tokens}) +
         svg_plot({"Requests under way", "s", "requests", false}, {running});
}

}  // namespace

std::string html_report(const OnlineSetting& setting, const Summary& summary,
                        const LoadResult& result) {
  std::string out = kHead;
  out += fmt::format("<h1>baton bench</h1>\n<p>{}, seed {}, {} warm-up requests</p>\n",
                     escape_html(setting.version), setting.seed, setting.n_warm_up);
  out += "<pre>" + escape_html(online_table(setting, summary)) + "</pre>\n<div class=\"plots\">";
  out += distributions(result) + latency_over_time(result) +
         throughput_over_time(result, summary.duration_s);
  return out + "</div>\n</body></html>\n";
}

}  // namespace baton::bench
