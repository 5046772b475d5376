#include "bench/summary.h"

#include <gtest/gtest.h>

namespace baton::bench {
namespace {

constexpr int64_t kMs = 1'000'000;

/// A complete request that was sent at `start_ms` and whose chunks came so many ms later.
RequestRecord record(int64_t start_ms, std::vector<int64_t> chunks_ms, int64_t n_tokens) {
  RequestRecord out;
  out.start_ns = start_ms * kMs;
  for (const int64_t ms : chunks_ms) out.chunk_ns.push_back((start_ms + ms) * kMs);
  out.end_ns = out.chunk_ns.empty() ? out.start_ns + kMs : out.chunk_ns.back();
  out.prompt_tokens = 10;
  out.output_tokens = n_tokens;
  out.has_usage = true;
  return out;
}

RequestRecord failed(const char* kind, const char* text) {
  RequestRecord out = record(1000, {}, 0);
  out.error_kind = kind;
  out.error = text;
  return out;
}

LoadResult run() {
  LoadResult result;
  result.start_ns = 1000 * kMs;
  // 4 tokens in 3 chunks; a single token; 2 tokens.
  result.records = {record(1000, {100, 130, 190}, 4), record(1500, {300}, 1),
                    record(1600, {50, 400}, 2)};
  result.end_ns = 3000 * kMs;
  return result;
}

TEST(Summary, Definitions) {
  const Summary s = summarize(run(), {});
  EXPECT_EQ(s.n_completed, 3U);
  EXPECT_DOUBLE_EQ(s.duration_s, 2);
  EXPECT_EQ(s.prompt_tokens, 30);
  EXPECT_EQ(s.output_tokens, 7);
  EXPECT_DOUBLE_EQ(s.requests_per_s, 1.5);
  EXPECT_DOUBLE_EQ(s.output_tokens_per_s, 3.5);
  EXPECT_DOUBLE_EQ(s.total_tokens_per_s, 18.5);
  EXPECT_DOUBLE_EQ(s.ttft_ms.mean, 150);
  EXPECT_DOUBLE_EQ(s.ttft_ms.p50, 100);
  EXPECT_EQ(s.itl_ms.n, 3U);  // 30, 60, 350
  EXPECT_DOUBLE_EQ(s.itl_ms.p50, 60);
  // (190 - 100) / 3 and (400 - 50) / 1; a single token has none.
  EXPECT_EQ(s.tpot_ms.n, 2U);
  EXPECT_DOUBLE_EQ(s.tpot_ms.mean, (30.0 + 350) / 2);
  EXPECT_DOUBLE_EQ(s.e2e_ms.mean, (190.0 + 300 + 400) / 3);
  EXPECT_FALSE(s.n_good.has_value());
  EXPECT_EQ(s.peak_running, 2U);  // the second and the third
}

TEST(Summary, SteadyRateIsThatOfTheTimeInWhichAllGenerate) {
  LoadResult result;
  // All generate in (200, 400]: two chunks of two tokens each, and three of one.
  result.records = {record(0, {100, 200, 300, 400}, 8), record(0, {200, 250, 350, 400, 600}, 5)};
  EXPECT_DOUBLE_EQ(summarize(result, {}).steady_output_tokens_per_s.value(), 7 / 0.2);
  result.records.push_back(failed("timeout", "slow"));
  EXPECT_DOUBLE_EQ(summarize(result, {}).steady_output_tokens_per_s.value(), 7 / 0.2);
  EXPECT_FALSE(summarize(run(), {}).steady_output_tokens_per_s.has_value());
}

TEST(Summary, Goodput) {
  const auto good = [](const char* slo) { return *summarize(run(), *parse_slo(slo)).n_good; };
  EXPECT_EQ(good("ttft=100"), 2U);
  EXPECT_EQ(good("tpot=30"), 2U);  // a single token keeps it
  EXPECT_EQ(good("ttft=100,tpot=30"), 1U);
  EXPECT_EQ(good("e2e=299"), 1U);
  EXPECT_EQ(good("e2el=400"), 3U);
  EXPECT_DOUBLE_EQ(summarize(run(), *parse_slo("ttft=100")).good_per_s, 1);
  EXPECT_TRUE(parse_slo("")->empty());
  for (const char* bad : {"ttft", "ttft=", "ttft=x", "ttft=-1", "ttft=nan", "itl=5",
                          "ttft=1,ttft=2", "ttft=1ms", "=5", ",", "ttft=1,,tpot=2"}) {
    const auto slo = parse_slo(bad);
    ASSERT_FALSE(slo.has_value()) << bad;
    EXPECT_NE(slo.error().message.find("--slo"), std::string::npos);
  }
}

TEST(Summary, FailuresCountInNoLatency) {
  LoadResult result = run();
  result.records.push_back(failed("http_500", "first"));
  result.records.push_back(failed("http_500", "second"));
  result.records.push_back(failed("timeout", "slow"));
  result.records.push_back(failed("cancelled", "signal"));
  const Summary s = summarize(result, *parse_slo("ttft=1000"));
  EXPECT_EQ(s.n_completed, 3U);
  EXPECT_EQ(s.n_failed, 3U);
  EXPECT_EQ(s.n_cancelled, 1U);
  EXPECT_EQ(s.n_good, 3U);
  EXPECT_EQ(s.ttft_ms.n, 3U);
  EXPECT_EQ(s.output_tokens, 7);
  EXPECT_EQ(s.errors, (std::map<std::string, size_t>{{"http_500", 2}, {"timeout", 1}}));
  EXPECT_EQ(s.examples.at("http_500"), "first");
}

TEST(Summary, Nothing) {
  const Summary s = summarize({}, *parse_slo("ttft=1"));
  EXPECT_EQ(s.n_completed, 0U);
  EXPECT_EQ(s.requests_per_s, 0);
  EXPECT_EQ(s.n_good, 0U);
}

TEST(Summary, OverTime) {
  const LoadResult result = run();
  using Point = std::pair<double, int>;
  const std::vector<Point> expected = {{0, 1}, {0.19, 0}, {0.5, 1}, {0.6, 2}, {0.8, 1}, {1, 0}};
  const auto running = running_over_time(result);
  ASSERT_EQ(running.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(running[i].first, expected[i].first, 1e-9);
    EXPECT_EQ(running[i].second, expected[i].second);
  }
  // Half seconds: 4 tokens; 1 of the third's two; its other one and the second's.
  const auto rates = tokens_over_time(result, 0.5);
  ASSERT_EQ(rates.size(), 3U);
  EXPECT_DOUBLE_EQ(rates[0], 8);
  EXPECT_DOUBLE_EQ(rates[1], 4);
  EXPECT_DOUBLE_EQ(rates[2], 2);
}

}  // namespace
}  // namespace baton::bench
