// Engines that hang: their process serves, as the supervisor says, but they don't answer or get
// nowhere.
#include <gtest/gtest.h>

#include "router/core_test_support.h"

namespace baton::router {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

RouterOptions hang_after(int64_t seconds) {
  RouterOptions options;
  options.hang_timeout_ns = seconds * kSecondNs;
  return options;
}

void supervise(Cluster& c, int engine, const std::string& state, int n_restarts = 0) {
  c.core->set_supervised(engine, "http://127.0.0.1:9000",
                         {.cpus = {}, .n_restarts = n_restarts, .state = state});
  c.core->tick();
}

void say_alive(Cluster& c, int engine, bool alive) {
  EngineState state;
  state.alive = state.ready = alive;
  state.reason = alive ? "" : "no progress";
  c.core->on_state(engine, state);
  c.core->tick();
}

TEST(RouterHang, ASilentEngineIsReportedWhenItsTimeIsUp) {
  Cluster c("PD", hang_after(50));
  supervise(c, 0, "ready");
  supervise(c, 1, "ready", 3);
  EXPECT_EQ(c.core->deadline(), std::nullopt);
  c.down(1, "silence");
  EXPECT_EQ(c.core->deadline(), c.clock.now_ns() + 50 * kSecondNs) << "though nothing is queued";
  c.advance_ms(49'999);
  c.core->on_down(1, "silence again");  // an attempt to attach
  EXPECT_TRUE(c.hung.empty());
  c.advance_ms(1);
  ASSERT_EQ(c.hung.size(), 1U);
  EXPECT_EQ(c.hung[0].id, "1");
  EXPECT_EQ(c.hung[0].n_restarts, 3);
  EXPECT_EQ(c.hung[0].reason, "silence again");
  c.advance_ms(49'999);
  EXPECT_EQ(c.hung.size(), 1U);
  c.advance_ms(1);
  EXPECT_EQ(c.hung.size(), 2U) << "nothing came of it";
}

TEST(RouterHang, AnEngineWithoutProgressIsReported) {
  Cluster c("BB", hang_after(50));
  supervise(c, 0, "ready");
  supervise(c, 1, "ready");
  for (int i = 0; i <= 50; ++i) {
    say_alive(c, 0, false);
    say_alive(c, 1, true);
    c.advance_ms(1'000);
  }
  ASSERT_EQ(c.hung.size(), 1U);
  EXPECT_EQ(c.hung[0].id, "0");
  EXPECT_EQ(c.hung[0].reason, "no progress");
}

TEST(RouterHang, WhatAStuckEngineGeneratesIsPlannedAgain) {
  Cluster c("BB");
  const RequestId id = c.add(20);
  c.started(0);
  c.tokens(0, 0, {1, 2});
  say_alive(c, 0, false);
  ASSERT_EQ(c.link(0).cancels.size(), 1U) << "it may come to itself";
  ASSERT_EQ(c.link(1).starts.size(), 1U);
  say_alive(c, 0, false);
  EXPECT_EQ(c.link(0).cancels.size(), 1U) << "once";
  c.started(1);
  c.tokens(1, 0, {3}, FinishReason::kLength);
  EXPECT_EQ(c.outcome(id).choices[0].tokens, (std::vector<TokenId>{1, 2, 3}));
  say_alive(c, 0, true);
  c.expect_idle();
}

TEST(RouterHang, WhatAStuckPrefillEngineSendsIsPlannedAgain) {
  Cluster c("PPD");
  const RequestId id = c.add(200);
  c.prepared(2);
  ASSERT_EQ(c.link(0).sends.size(), 1U);
  say_alive(c, 0, false);
  EXPECT_EQ(c.link(0).cancels.size(), 1U);
  c.prepared(2);
  ASSERT_EQ(c.link(1).sends.size(), 1U);
  c.sent(1);
  c.started(2);
  c.tokens(2, 0, {7}, FinishReason::kLength);
  EXPECT_EQ(c.outcome(id).choices[0].tokens, (std::vector<TokenId>{7}));
  EXPECT_EQ(c.series("baton_request_retries_total"), 1);
  c.expect_idle();
}

TEST(RouterHang, OneThatComesBackInTimeIsNot) {
  Cluster c("BB", hang_after(50));
  supervise(c, 0, "ready");
  supervise(c, 1, "ready");
  for (int i = 0; i < 5; ++i) {
    c.down(0);
    say_alive(c, 1, false);
    c.advance_ms(49'000);
    c.up(0);
    say_alive(c, 0, true);
    say_alive(c, 1, true);
  }
  c.advance_ms(1'000'000);
  EXPECT_TRUE(c.hung.empty());
  EXPECT_EQ(c.core->deadline(), std::nullopt);
}

TEST(RouterHang, OneThatLetsItselfBeAttachedToAndSaysNothingIs) {
  Cluster c("B", hang_after(50));
  supervise(c, 0, "ready");
  for (int i = 0; i < 5; ++i) {
    c.down(0);
    c.advance_ms(1'000);
    c.up(0);
    c.advance_ms(10'000);
  }
  EXPECT_EQ(c.hung.size(), 1U);
}

TEST(RouterHang, ANewIncarnationIsASignOfLife) {
  Cluster c("B", hang_after(1));
  supervise(c, 0, "ready");
  c.down(0);
  supervise(c, 0, "dead");
  supervise(c, 0, "ready", 1);
  c.advance_ms(999);
  c.restart(0);
  c.advance_ms(1'000);  // its first frame is under way
  EXPECT_TRUE(c.hung.empty());
}

TEST(RouterHang, TheDeadAndThoseThatStartDoNotHang) {
  Cluster c("BB", hang_after(50));
  supervise(c, 0, "ready");
  c.down(0);
  c.advance_ms(30'000);
  supervise(c, 0, "dead");
  c.advance_ms(100'000);
  supervise(c, 0, "starting", 1);
  c.advance_ms(100'000);
  supervise(c, 0, "ready", 1);  // its time begins
  c.advance_ms(49'999);
  EXPECT_TRUE(c.hung.empty());
  c.advance_ms(1);
  ASSERT_EQ(c.hung.size(), 1U) << "never reached";
  EXPECT_EQ(c.hung[0].n_restarts, 1);
  supervise(c, 0, "draining", 1);
  c.down(1);  // whose processes nobody supervises
  c.advance_ms(1'000'000);
  EXPECT_EQ(c.hung.size(), 1U);
}

TEST(RouterHang, WithoutATimeoutNoneIsReported) {
  Cluster c("B");
  supervise(c, 0, "ready");
  c.down(0);
  EXPECT_EQ(c.core->deadline(), std::nullopt);
  c.advance_ms(10'000'000);
  EXPECT_TRUE(c.hung.empty());
}

}  // namespace
}  // namespace baton::router
