#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace baton::text {
namespace {

struct Outcome {
  std::string text;
  std::optional<int> stop;
  bool operator==(const Outcome&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << '\'' << outcome.text << "' stop " << outcome.stop.value_or(-1);
}

/// The definition: the first place where a stop string ends; of several, the longest.
Outcome match_naively(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<int> best;
    size_t longest = 0;
    for (size_t s = 0; s < stops.size(); ++s) {
      if (stops[s].size() > longest && text.substr(0, end).ends_with(stops[s])) {
        best = static_cast<int>(s);
        longest = stops[s].size();
      }
    }
    if (best) return {text.substr(0, end - longest), best};
  }
  return {text, std::nullopt};
}

TEST(StopMatcher, AnyCutGivesWhatTheDefinitionSays) {
  std::mt19937_64 random(5);
  const auto random_text = [&random](size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += "aab\n"[random() % 4];
    return text;
  };
  int n_stopped = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> stops;
    for (uint64_t n = random() % 4; n > 0; --n) stops.push_back(random_text(random() % 7));
    const std::string text = random_text(random() % 40);
    const Outcome expected = match_naively(text, stops);

    StopMatcher matcher(std::make_shared<StopStrings>(stops));
    Outcome outcome;
    for (size_t begin = 0; begin < text.size();) {
      const size_t n = random() % 6;
      const auto output = matcher.push(text.substr(begin, n));
      begin += n;
      outcome.text += output.text;
      if (output.stop) {
        EXPECT_FALSE(outcome.stop);
        outcome.stop = output.stop;
      }
      // What is out is right whatever comes next.
      ASSERT_TRUE(expected.text.starts_with(outcome.text)) << text;
    }
    EXPECT_EQ(matcher.stopped(), outcome.stop.has_value());
    outcome.text += matcher.flush();
    ASSERT_EQ(outcome, expected) << ::testing::PrintToString(text) << " with "
                                 << ::testing::PrintToString(stops);
    n_stopped += outcome.stop.has_value() ? 1 : 0;
  }
  EXPECT_GT(n_stopped, 5000);
  EXPECT_LT(n_stopped, 15'000);
}

TEST(StopMatcher, HoldsBackNoMoreThanItMust) {
  StopMatcher matcher(std::make_shared<StopStrings>(std::vector<std::string>{"###", "\n\nQ:"}));
  EXPECT_EQ(matcher.push("one #").text, "one ");
  EXPECT_EQ(matcher.push("# two").text, "## two");
  EXPECT_EQ(matcher.push("\n\n").text, "");
  EXPECT_EQ(matcher.push("A").text, "\n\nA");
  const auto output = matcher.push(".\n\nQ: more");
  EXPECT_EQ(output.text, ".");
  EXPECT_EQ(output.stop, 1);
  EXPECT_EQ(matcher.push("after").text, "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, WithoutStopStringsEverythingPasses) {
  StopMatcher matcher(std::make_shared<StopStrings>(std::vector<std::string>{""}));
  EXPECT_EQ(matcher.push("all of it").text, "all of it");
  EXPECT_EQ(matcher.flush(), "");
}

}  // namespace
}  // namespace baton::text
