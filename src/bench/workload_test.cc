#include "bench/workload.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "bench/prompts.h"
#include "bench/statistics.h"

namespace baton::bench {
namespace {

TEST(Random, TheSameEverywhere) {
  // SplitMix64 with seed 0: the reference implementation's first numbers.
  Random random(0);
  EXPECT_EQ(random.next(), 0xE220A8397B1DCDAFU);
  EXPECT_EQ(random.next(), 0x6E789E6AA1B965F4U);
  EXPECT_NE(mix(1, 2), mix(2, 1));
}

TEST(Random, Moments) {
  Random random(7);
  std::vector<double> uniform;
  std::vector<double> exponential;
  std::vector<double> normal;
  for (int i = 0; i < 100'000; ++i) {
    uniform.push_back(random.uniform());
    exponential.push_back(random.exponential());
    normal.push_back(random.normal());
  }
  EXPECT_NEAR(describe(uniform).mean, 0.5, 0.01);
  EXPECT_NEAR(describe(uniform).std, 0.2887, 0.01);
  EXPECT_NEAR(describe(exponential).mean, 1, 0.02);
  EXPECT_NEAR(describe(exponential).std, 1, 0.02);
  EXPECT_NEAR(describe(normal).mean, 0, 0.02);
  EXPECT_NEAR(describe(normal).std, 1, 0.02);
}

Lengths lengths(const char* text) { return *parse_lengths("--f", text, 100); }

TEST(Lengths, WhatPeopleType) {
  Random random(1);
  EXPECT_EQ(lengths("512").sample(random), 512);
  std::set<int> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(lengths("3-6").sample(random));
  EXPECT_EQ(seen, (std::set{3, 4, 5, 6}));
  std::vector<double> samples;
  for (int i = 0; i < 100'000; ++i) {
    samples.push_back(lengths("lognormal:200:0.5").sample(random));
  }
  EXPECT_NEAR(describe(samples).mean, 200, 2);
  EXPECT_NEAR(describe(samples).p50, 200 * std::exp(-0.125), 2);
  EXPECT_EQ(lengths("sharegpt").mean, 100);
  for (const char* bad :
       {"", "0", "-1", "5-3", "1-", "-", "x", "1.5", "99999999999", "lognormal:", "lognormal:5",
        "lognormal:0:1", "lognormal:5:-1", "lognormal:nan:1", "lognormal:5:9", "5 ", "5-6-7"}) {
    const auto result = parse_lengths("--prompt-tokens", bad, 100);
    ASSERT_FALSE(result.has_value()) << bad;
    EXPECT_NE(result.error().message.find("--prompt-tokens"), std::string::npos);
  }
}

TEST(Arrivals, AtTheRateThatWasAskedFor) {
  const auto fixed = arrivals(4, 2, Arrival::kFixed, 1);
  EXPECT_EQ(fixed, (std::vector{0.5, 1.0, 1.5, 2.0}));
  const auto poisson = arrivals(1000, 50, Arrival::kPoisson, 1);
  EXPECT_NEAR(poisson.back(), 20, 1e-9);
  std::vector<double> gaps;
  for (size_t i = 1; i < poisson.size(); ++i) gaps.push_back(poisson[i] - poisson[i - 1]);
  // Exponential gaps: as wide as their mean, none negative.
  EXPECT_NEAR(describe(gaps).mean, 0.02, 0.001);
  EXPECT_NEAR(describe(gaps).std, 0.02, 0.003);
  EXPECT_GE(describe(gaps).min, 0);
  EXPECT_EQ(poisson, arrivals(1000, 50, Arrival::kPoisson, 1));
  EXPECT_NE(poisson, arrivals(1000, 50, Arrival::kPoisson, 2));
  EXPECT_EQ(arrivals(3, 0, Arrival::kPoisson, 1), (std::vector{0.0, 0.0, 0.0}));
  EXPECT_TRUE(arrivals(0, 5, Arrival::kPoisson, 1).empty());
}

std::vector<TokenId> ids(const PlannedRequest& request) { return prompt_ids(request, {}); }

TEST(Synthetic, AFunctionOfTheSeed) {
  SyntheticOptions options;
  options.n_requests = 20;
  options.rate = 5;
  options.prompt = lengths("10-40");
  options.output = lengths("1-9");
  options.shared_prefix = 6;
  options.seed = 3;
  const auto first = synthetic(options);
  const auto again = synthetic(options);
  options.seed = 4;
  const auto other = synthetic(options);
  ASSERT_EQ(first.size(), 20U);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].due_s, again[i].due_s);
    EXPECT_EQ(first[i].n_output, again[i].n_output);
    EXPECT_EQ(ids(first[i]), ids(again[i]));
    EXPECT_NE(ids(first[i]), ids(other[i]));
    EXPECT_GE(first[i].n_prompt(), 16);
    EXPECT_LE(first[i].n_prompt(), 46);
    EXPECT_EQ(first[i].n_prompt(), static_cast<int>(ids(first[i]).size()));
  }
  // The shared prefix, and nothing else, is common.
  const auto a = ids(first[0]);
  const auto b = ids(first[1]);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 6, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 6, a.begin() + 16, b.begin() + 6));
}

TEST(Replay, EqualIdsAreEqualPrefixes) {
  const std::vector<TraceRow> rows = {{0, 1100, 50, {7, 8, 9}},
                                      {2, 1200, 60, {7, 8, 10}},
                                      {3, 700, 1, {11, 8}},
                                      {4, 600, 1, {}},
                                      {5, 600, 1, {7}}};
  const auto requests = replay(rows, {.speed = 4, .length_scale = 1, .seed = 1});
  ASSERT_EQ(requests.size(), 5U);
  EXPECT_DOUBLE_EQ(requests[1].due_s, 0.5);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(requests[i].n_prompt(), rows[i].n_prompt);
    EXPECT_EQ(requests[i].n_output, rows[i].n_output);
  }
  const auto common = [&](size_t i, size_t j) {
    const auto a = ids(requests[i]);
    const auto b = ids(requests[j]);
    return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  };
  EXPECT_EQ(common(0, 1), 1024);
  EXPECT_EQ(common(0, 2), 0);
  EXPECT_EQ(common(0, 3), 0);
  EXPECT_EQ(common(0, 4), 512);
  EXPECT_EQ(common(3, 4), 0);
  const auto words = [&](size_t i) { return prompt_words(requests[i]); };
  EXPECT_EQ(words(0).substr(0, 2000), words(1).substr(0, 2000));

  // A tenth of the lengths: a tenth of the blocks, and the same sharing.
  const auto small = replay(rows, {.speed = 1, .length_scale = 0.1, .seed = 1});
  EXPECT_EQ(small[0].n_prompt(), 110);
  EXPECT_EQ(small[0].n_output, 5);
  const auto a = ids(small[0]);
  const auto b = ids(small[1]);
  EXPECT_EQ(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin(), 2 * 51);
}

TEST(Fit, CutsWhatIsTooLong) {
  const auto request = [](std::vector<Segment> prompt, int n_output) {
    return PlannedRequest{0, std::move(prompt), n_output};
  };
  std::vector<PlannedRequest> requests = {request({{1, 10}}, 5), request({{1, 50}, {2, 100}}, 5),
                                          request({{1, 10}}, 500), request({{1, 900}}, 900)};
  EXPECT_EQ(fit(requests, {}), 0);
  EXPECT_EQ(fit(requests, {.max_prompt = 0, .max_output = 0, .max_total = 110, .reserve = 10}), 3);
  EXPECT_EQ(requests[0].n_prompt(), 10);
  EXPECT_EQ(requests[0].n_output, 5);
  EXPECT_EQ(requests[1].n_prompt(), 95);
  EXPECT_EQ(requests[1].prompt[0].n_tokens, 50);  // cut at its end
  EXPECT_EQ(requests[1].n_output, 5);
  EXPECT_EQ(requests[2].n_prompt(), 10);
  EXPECT_EQ(requests[2].n_output, 90);
  EXPECT_EQ(requests[3].n_prompt(), 50);
  EXPECT_EQ(requests[3].n_output, 50);
  EXPECT_EQ(fit(requests, {.max_prompt = 7, .max_output = 6, .max_total = 0, .reserve = 0}), 4);
  EXPECT_EQ(requests[3].n_prompt(), 7);
  EXPECT_EQ(requests[3].n_output, 6);
  // A context of nothing leaves something to ask for.
  EXPECT_EQ(fit(requests, {.max_prompt = 0, .max_output = 0, .max_total = 1, .reserve = 100}), 4);
  EXPECT_EQ(requests[3].n_prompt(), 1);
  EXPECT_EQ(requests[3].n_output, 1);
}

TEST(Prompts, Bodies) {
  const PlannedRequest request{0, {{1, 3}, {2, 2}}, 9};
  PromptOptions options;
  options.model = "a \"model\"";
  options.token_ids = true;
  options.first_id = 10;
  options.n_ids = 5;
  const auto body = nlohmann::json::parse(request_body(request, options));
  EXPECT_EQ(body["model"], "a \"model\"");
  ASSERT_EQ(body["prompt"].size(), 5U);
  for (const int id : body["prompt"]) EXPECT_TRUE(id >= 10 && id < 15);
  EXPECT_EQ(body["max_tokens"], 9);
  EXPECT_EQ(body["temperature"], 0);
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(body["stream_options"]["include_usage"], true);

  options = {};
  options.chat = true;
  options.ignore_eos = false;
  const auto chat = nlohmann::json::parse(request_body(request, options));
  const std::string text = chat["messages"][0]["content"];
  EXPECT_EQ(text, prompt_words(request));
  EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 4);
  EXPECT_FALSE(chat.contains("model") || chat.contains("ignore_eos") || chat.contains("prompt"));
}

}  // namespace
}  // namespace baton::bench
