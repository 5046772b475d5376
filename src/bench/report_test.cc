#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "bench/html_report.h"
#include "bench/online_report.h"
#include "bench/server_info.h"
#include "bench/svg_plot.h"

namespace baton::bench {
namespace {

constexpr int64_t kMs = 1'000'000;

/// `n` requests, 10 ms apart, each of 5 tokens; one has failed.
LoadResult some(int n) {
  LoadResult result;
  for (int64_t i = 0; i < n; ++i) {
    RequestRecord& record = result.records.emplace_back();
    record.start_ns = i * 10 * kMs;
    for (int64_t k = 1; k <= 5; ++k) record.chunk_ns.push_back(record.start_ns + k * (i + 1) * kMs);
    record.end_ns = record.chunk_ns.back();
    record.prompt_tokens = 7;
    record.output_tokens = 5;
    result.end_ns = std::max(result.end_ns, record.end_ns);
  }
  result.records.back().error_kind = "http_500";
  result.records.back().error = "<script>alert(\"&\")</script>";
  return result;
}

OnlineSetting setting() {
  OnlineSetting out;
  out.url = "http://127.0.0.1:1";
  out.model = "</pre><b>";
  out.load = "all at once";
  return out;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(OnlineReport, TableAndJsonSayTheSame) {
  const LoadResult result = some(5);
  const Slo slo = *parse_slo("ttft=2,e2e=100");
  const Summary summary = summarize(result, slo);
  const auto json = nlohmann::json::parse(online_json(setting(), summary, result, slo));
  EXPECT_EQ(json["completed"], 4);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["errors"]["http_500"], 1);
  EXPECT_EQ(json["total_input_tokens"], 28);
  EXPECT_EQ(json["total_output_tokens"], 20);
  EXPECT_EQ(json["good"], 2);
  EXPECT_EQ(json["slo_ms"], (nlohmann::json{{"ttft", 2}, {"e2e", 100}}));
  EXPECT_DOUBLE_EQ(json["mean_ttft_ms"], 2.5);
  EXPECT_DOUBLE_EQ(json["median_ttft_ms"], 2.5);
  EXPECT_DOUBLE_EQ(json["p99_itl_ms"], 4);
  EXPECT_DOUBLE_EQ(json["max_e2el_ms"], 20);
  ASSERT_EQ(json["requests"].size(), 5U);
  EXPECT_DOUBLE_EQ(json["requests"][1]["start_s"], 0.01);
  EXPECT_DOUBLE_EQ(json["requests"][1]["tpot_ms"], 2);
  EXPECT_EQ(json["requests"][4]["error"], "http_500");
  const std::string table = online_table(setting(), summary);
  EXPECT_NE(table.find("4 requests complete, 1 failed"), std::string::npos);
  EXPECT_NE(table.find("1 x http_500"), std::string::npos);
  EXPECT_NE(table.find("within SLO"), std::string::npos);
  EXPECT_NE(table.find("4 answers came without usage"), std::string::npos);
}

TEST(HtmlReport, OneFileThatNeedsNothing) {
  const LoadResult result = some(50);
  const std::string html = html_report(setting(), summarize(result, {}), result);
  EXPECT_EQ(count(html, "<svg"), 6U);
  EXPECT_EQ(count(html, "</svg>"), 6U);
  for (const char* outside :
       {"src=", "href=", "url(", "@import", "<script", "<b>", "nan", "inf,"}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(html.find("&lt;/pre&gt;"), std::string::npos);
  // A dot for each complete request, in both plots of latencies; two series in the first.
  EXPECT_EQ(count(html, "<circle"), 49U * 3);
}

TEST(HtmlReport, OfNothing) {
  const std::string html = html_report(setting(), summarize({}, {}), {});
  EXPECT_EQ(count(html, "<svg"), 6U);
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

TEST(SvgPlot, RoundTicks) {
  EXPECT_DOUBLE_EQ(tick_step(10, 5), 2);
  EXPECT_DOUBLE_EQ(tick_step(11, 5), 5);
  EXPECT_DOUBLE_EQ(tick_step(0.04, 5), 0.01);
  EXPECT_DOUBLE_EQ(tick_step(1e-9, 5), 2e-10);
  for (double high = 0.001; high < 1e6; high *= 1.7) {
    EXPECT_LE(high / tick_step(high, 8), 8.001);
    EXPECT_GE(high / tick_step(high, 8), 3);
  }
}

TEST(SvgPlot, WhatIsNotFiniteIsLeftOut) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::string svg =
      svg_plot({"t", "x", "y", false},
               {{"", PlotSeries::Shape::kDots, {{1, 1}, {inf, 2}, {3, -inf}, {0, 0.0 * inf}}}});
  EXPECT_EQ(count(svg, "<circle"), 1U);
  // Many points are thinned out, and the last one stays.
  PlotSeries many{"", PlotSeries::Shape::kDots, {}};
  for (int i = 0; i <= 100'000; ++i) many.points.emplace_back(i, i);
  EXPECT_EQ(count(svg_plot({"t", "x", "y", false}, {many}), "<circle"), 2000U);
}

TEST(ServerInfo, WhatModelsSays) {
  const auto info = read_models(R"({"data":[{"id":"m","max_model_len":8192},{"id":"n"}]})");
  EXPECT_EQ(info.model, "m");
  EXPECT_EQ(info.max_model_len, 8192);
  for (const char* bad : {"", "[]", "{}", R"({"data":{}})", R"({"data":[]})", R"({"data":[7]})",
                          R"({"data":[{"id":5,"max_model_len":"8"}]})",
                          R"({"data":[{"max_model_len":99999999999}]})"}) {
    EXPECT_EQ(read_models(bad).model, "") << bad;
    EXPECT_EQ(read_models(bad).max_model_len, 0) << bad;
  }
}

}  // namespace
}  // namespace baton::bench
