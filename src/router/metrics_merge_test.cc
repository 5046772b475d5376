#include "router/metrics_merge.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "base/metrics.h"

namespace baton::router {
namespace {

/// Reads text exposition as strictly as a scraper may: every family once and in one piece, its TYPE
/// before its samples, no series twice. Gives back the series by name and labels.
std::map<std::string, double> parse(const std::string& text) {
  std::map<std::string, double> out;
  std::set<std::string> finished;
  std::string family;
  std::string type;
  std::istringstream lines(text);
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    std::string second;
    std::string third;
    words >> first >> second >> third;
    if (first == "#" && (second == "HELP" || second == "TYPE")) {
      if (third != family) {
        EXPECT_TRUE(finished.insert(family).second || family.empty());
        EXPECT_FALSE(finished.contains(third)) << third << " comes twice";
        family = third;
        type.clear();
      }
      if (second == "TYPE") {
        EXPECT_TRUE(type.empty()) << "a second TYPE of " << family;
        words >> type;
      }
      continue;
    }
    if (first == "#" || line.empty()) continue;
    const size_t name_end = line.find_first_of("{ ");
    const std::string name = line.substr(0, name_end);
    EXPECT_TRUE(name.starts_with(family)) << line << " after TYPE of " << family;
    const std::string suffix = name.substr(std::min(name.size(), family.size()));
    EXPECT_TRUE(suffix.empty() || (type == "histogram" &&
                                   (suffix == "_bucket" || suffix == "_sum" || suffix == "_count")))
        << line;
    const size_t space = line.rfind(' ');
    EXPECT_TRUE(out.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second)
        << "twice: " << line;
  }
  return out;
}

std::string engine_text(double running, double requests) {
  MetricsRegistry registry(Labels{{"model_name", "tiny"}});
  registry.gauge({"vllm:num_requests_running", "Running."}).Set(running);
  registry.counter({"vllm:prompt_tokens_total", "Prompt tokens."}).Increment(requests);
  registry.histogram({"baton_step_seconds", "Steps."}, {0.1, 1}, {{"kind", "decode"}}).Observe(0.5);
  return registry.text();
}

TEST(MetricsMerge, EachFamilyOnceWithTheEnginesLabels) {
  MetricsRegistry own(Labels{{"model_name", "tiny"}});
  own.counter({"vllm:prompt_tokens_total", "Prompt tokens."}).Increment(7);
  const std::string text = merge_metrics(own.text(), {{"0", "prefill", engine_text(2, 100), ""},
                                                      {"1", "decode", engine_text(3, 200), ""}});
  const auto series = parse(text);
  EXPECT_EQ(series.at(R"(vllm:prompt_tokens_total{model_name="tiny"})"), 7);
  EXPECT_EQ(series.at(R"(vllm:num_requests_running{engine="0",role="prefill",model_name="tiny"})"),
            2);
  EXPECT_EQ(series.at(R"(vllm:num_requests_running{engine="1",role="decode",model_name="tiny"})"),
            3);
  EXPECT_EQ(series.at(R"(baton_step_seconds_bucket{engine="1",role="decode",model_name="tiny",)"
                      R"(kind="decode",le="1"})"),
            1);
  EXPECT_EQ(series.at(R"(baton_step_seconds_count{engine="0",role="prefill",model_name="tiny",)"
                      R"(kind="decode"})"),
            1);
  for (const auto& [name, value] : series) {
    EXPECT_FALSE(name.starts_with("vllm:prompt_tokens_total{engine")) << "the router's own alone";
  }
  EXPECT_NE(text.find("# HELP vllm:num_requests_running Running.\n"), text.npos);
}

TEST(MetricsMerge, AnEngineWithoutAnAnswerIsAComment) {
  const std::string text = merge_metrics("# TYPE a gauge\na 1\n", {{"1", "", "", "took\nlong"}});
  EXPECT_EQ(text, "# TYPE a gauge\na 1\n# engine 1 is left out: took long\n");
  parse(text);
}

TEST(MetricsMerge, SeriesWithoutLabelsOrWithTrickyOnes) {
  const std::string text = merge_metrics(
      "",
      {{"x\"y", "both", "# TYPE a gauge\na 1\n", ""},
       {"1", "both", "# TYPE a gauge\na{k=\"}, \\\" 5\"} 2 1700000000000\na{k=\"b\",} NaN\n", ""}});
  EXPECT_NE(text.find(R"(a{engine="x\"y",role="both"} 1)"), text.npos);
  EXPECT_NE(text.find(R"(a{engine="1",role="both",k="}, \" 5"} 2 1700000000000)"), text.npos);
  EXPECT_NE(text.find(R"(a{engine="1",role="both",k="b",} NaN)"), text.npos);
}

TEST(MetricsMerge, WhatIsNoSampleIsLeftOut) {
  for (const char* bad :
       {"a", "a{", "a{} ", "a{k} 1", "a{k=\"v} 1", "a{k=\"v\" 1", "a 1 2 3", "a x", "1a 1", "{} 1",
        "a{engine=\"9\"} 1", "a{role=\"p\"} 1", "<html>", "a{k=\"v\\", "a{k=\"", "a{k="}) {
    SCOPED_TRACE(bad);
    EXPECT_EQ(merge_metrics("", {{"1", "both", std::string("# TYPE a gauge\n") + bad + "\n", ""}}),
              "");
  }
}

TEST(MetricsMerge, AFamilyInPiecesBecomesOne) {
  const std::string text =
      merge_metrics("", {{"0", "both",
                          "# TYPE a counter\na 1\n# TYPE b gauge\nb 1\nuntyped 4\n"
                          "# TYPE a counter\na{k=\"2\"} 1\n",
                          ""}});
  EXPECT_EQ(text,
            "# TYPE a counter\na{engine=\"0\",role=\"both\"} 1\n"
            "a{engine=\"0\",role=\"both\",k=\"2\"} 1\n"
            "# TYPE b gauge\nb{engine=\"0\",role=\"both\"} 1\n"
            "untyped{engine=\"0\",role=\"both\"} 4\n");
}

}  // namespace
}  // namespace baton::router
