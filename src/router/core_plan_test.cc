// Plans: which engine does what, in which order, and what the queue does meanwhile.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "router/core_test_support.h"

namespace baton::router {
namespace {

std::string last_reason(const Cluster& cluster, RequestId id) {
  return cluster.plan(id)["attempts"].back()["reason"].get<std::string>();
}

TEST(RouterPlan, LongPromptIsDisaggregated) {
  Cluster c("PD");
  const RequestId id = c.add(200);
  ASSERT_EQ(c.link(1).preps.size(), 1U);
  EXPECT_EQ(c.link(1).preps[0].request.end, 192);
  EXPECT_TRUE(c.link(1).preps[0].request.match_prefix);
  EXPECT_TRUE(c.link(0).sends.empty()) << "before prep_recv has answered";
  c.prepared(1, 32);
  ASSERT_EQ(c.link(0).sends.size(), 1U);
  const RemoteSend& send = c.link(0).sends[0].request;
  EXPECT_EQ(send.begin, 32);
  EXPECT_EQ(send.end, 192);
  EXPECT_EQ(send.to.blocks.size(), 10U);
  // At once, without waiting for the sender.
  ASSERT_EQ(c.link(1).starts.size(), 1U);
  const TokenRequest& start = c.link(1).starts[0].request;
  ASSERT_TRUE(start.leased.has_value());
  EXPECT_EQ(start.leased->begin, 192);
  EXPECT_EQ(start.leased->lease, LeaseId{1});
  EXPECT_NE(start.id, id) << "engines get ids of the router's own";
  c.started(1);
  c.sent(0);
  c.tokens(1, 0, {5, 6}, FinishReason::kStop);
  EXPECT_EQ(c.outcome(id).prompt->n_prompt_tokens, 200);
  EXPECT_EQ(c.outcome(id).prompt->n_cached_tokens, 32);
  EXPECT_EQ(c.outcome(id).choices[0].tokens, (std::vector<TokenId>{5, 6}));
  c.expect_idle();

  const nlohmann::json attempt = c.plan(id)["attempts"][0];
  EXPECT_EQ(attempt["plan"], "disaggregated");
  EXPECT_EQ(attempt["reason"], "uncached");
  EXPECT_EQ(attempt["decode"]["engine"], "1");
  EXPECT_EQ(attempt["prefill"]["engine"], "0");
  EXPECT_EQ(attempt["prefill"]["candidates"][0]["score"]["requests"], 0);
  EXPECT_EQ(attempt["outcome"], "finished");
  EXPECT_EQ(attempt["measured"]["sender"]["bytes"], 4096);
  EXPECT_EQ(attempt["measured"]["tokens"], 2);
  EXPECT_EQ(c.series("baton_router_plan_total", R"(plan="disaggregated",reason="uncached")"), 1);
  EXPECT_EQ(
      c.series("baton_router_requests_total", R"(engine="1",outcome="finished",role="decode")"), 1);
  EXPECT_EQ(
      c.series("baton_router_requests_total", R"(engine="0",outcome="finished",role="prefill")"),
      1);
  EXPECT_TRUE(c.link(1).releases.empty());
  EXPECT_TRUE(c.link(1).cancels.empty());
  EXPECT_TRUE(c.link(0).cancels.empty());
}

TEST(RouterPlan, ShortPromptIsDecodedWhole) {
  Cluster c("PD");
  const RequestId id = c.add(127);
  EXPECT_TRUE(c.link(1).preps.empty());
  ASSERT_EQ(c.link(1).starts.size(), 1U);
  EXPECT_FALSE(c.link(1).starts[0].request.leased.has_value());
  EXPECT_EQ(last_reason(c, id), "short");
}

TEST(RouterPlan, WhatFitsNoBlockIsShortWhateverTheThreshold) {
  RouterOptions options;
  options.planner.remote_prefill_min_tokens = 1;
  Cluster c("PD", options);
  const RequestId id = c.add(16);
  EXPECT_EQ(last_reason(c, id), "short");
  c.add(17);
  EXPECT_EQ(c.link(1).preps.size(), 1U);
}

TEST(RouterPlan, CachedPromptNeedsNoSender) {
  Cluster c("PD");
  const RequestId id = c.add(200);
  c.prepared(1, 80);  // 120 are left
  EXPECT_TRUE(c.link(0).sends.empty());
  ASSERT_EQ(c.link(1).starts.size(), 1U);
  EXPECT_EQ(c.link(1).starts[0].request.leased->begin, 80);
  EXPECT_EQ(last_reason(c, id), "cached");
  EXPECT_EQ(c.core->engines()[0].load.n_requests, 0);
}

TEST(RouterPlan, AFullyCachedPromptNeedsNoSenderWhateverTheThreshold) {
  RouterOptions options;
  options.planner.remote_prefill_min_tokens = 1;
  Cluster c("PD", options);
  const RequestId id = c.add(33);
  c.prepared(1, 32);
  EXPECT_TRUE(c.link(0).sends.empty());
  EXPECT_EQ(last_reason(c, id), "cached");
}

TEST(RouterPlan, NoPrefillEngine) {
  Cluster c("PD");
  const RequestId first = c.add(200);
  c.down(0);  // while prep_recv is under way
  c.prepared(1, 16);
  const RequestId second = c.add(200);
  const RequestId short_one = c.add(20);
  EXPECT_EQ(last_reason(c, short_one), "short") << "which needs none";
  c.advance_ms(14'999);
  EXPECT_EQ(c.link(1).starts.size(), 1U) << "it may be back soon";
  c.advance_ms(1);
  ASSERT_EQ(c.link(1).starts.size(), 3U);
  for (const RequestId id : {first, second}) {
    EXPECT_EQ(last_reason(c, id), "no prefill engine");
  }
  EXPECT_FALSE(c.link(1).starts[1].request.leased.has_value());
  const RequestId third = c.add(200);
  EXPECT_EQ(last_reason(c, third), "no prefill engine") << "nobody waits for it any more";
}

TEST(RouterPlan, APrefillEngineThatIsBackInTimeComputesWhatWaitedForIt) {
  Cluster c("PD");
  c.down(0);
  const RequestId id = c.add(200);
  EXPECT_TRUE(c.core->check(c.request(5))) << "new requests are taken meanwhile";
  c.advance_ms(2'000);
  c.restart(0);
  c.prepared(1, 0);
  EXPECT_EQ(last_reason(c, id), "uncached");
  EXPECT_EQ(c.link(0).sends.size(), 1U);
}

TEST(RouterPlan, EnginesOfAnotherLayoutOrWithoutAWorldCantHandOver) {
  for (const bool in_world : {true, false}) {
    Cluster c("PD");
    EngineInfo info = c.info(0);
    info.in_world = in_world;
    if (in_world) info.layout_hash = 78;
    c.core->on_up(0, info);
    const RequestId id = c.add(200);
    EXPECT_EQ(last_reason(c, id), "no prefill engine");
    EXPECT_FALSE(c.core->engines().missing_for_path().empty());
    EXPECT_TRUE(c.core->check(c.request(5))) << "the decode engine does it alone";
  }
}

TEST(RouterPlan, AnEngineOfBothRolesDoesItAll) {
  Cluster c("B");
  const RequestId id = c.add(200);
  ASSERT_EQ(c.link(0).starts.size(), 1U);
  EXPECT_FALSE(c.link(0).starts[0].request.leased.has_value());
  EXPECT_EQ(c.plan(id)["attempts"][0]["plan"], "both");
  EXPECT_EQ(last_reason(c, id), "both roles");
}

TEST(RouterPlan, PromptLogprobsAreJoined) {
  Cluster c("PD");
  TokenRequest request = c.request(200, 1, 1);
  request.n_prompt_logprobs = 0;
  request.n_logprobs = 0;
  const RequestId id = c.add(std::move(request));
  EXPECT_FALSE(c.link(1).preps[0].request.match_prefix);
  c.prepared(1, 0);
  EXPECT_EQ(c.link(0).sends[0].request.n_prompt_logprobs, 0);
  // The decode engine is the faster one: its events wait for the sender's part.
  c.tokens(1, 0, {5}, FinishReason::kLength);
  EXPECT_FALSE(c.outcome(id).prompt.has_value());
  c.sent(0);
  ASSERT_TRUE(c.outcome(id).prompt.has_value());
  const auto& entries = c.outcome(id).prompt->prompt_logprobs;
  ASSERT_EQ(entries.size(), 200U);
  for (size_t t = 0; t < entries.size(); ++t) EXPECT_EQ(entries[t].logprob, -float(t));
  EXPECT_EQ(c.outcome(id).choices[0].finish, FinishReason::kLength);
  c.expect_idle();
}

TEST(RouterPlan, APrefillEngineGetsTwoPromptsAndTheRestWaitsInTheQueue) {
  Cluster c("PD");
  const RequestId first = c.add(200);
  c.add(200);
  c.add(200);
  const RequestId short_one = c.add(20);
  EXPECT_EQ(c.link(1).preps.size(), 2U) << "the third waits before prep_recv";
  EXPECT_EQ(c.core->n_queued(), 1U);
  EXPECT_EQ(last_reason(c, short_one), "short") << "which needs no prefill engine, goes first";
  c.prepared(1, 0, 0);
  c.prepared(1, 0, 1);
  EXPECT_EQ(c.link(0).sends.size(), 2U);
  EXPECT_EQ(c.link(1).preps.size(), 2U);
  c.sent(0, 0);
  EXPECT_EQ(c.link(1).preps.size(), 3U);
  EXPECT_EQ(c.core->n_queued(), 0U);
  (void)first;
}

TEST(RouterPlan, ACachedPromptGivesItsPlaceAtThePrefillEngineBack) {
  Cluster c("PD");
  c.add(200);
  c.add(200);
  c.add(200);
  EXPECT_EQ(c.link(1).preps.size(), 2U);
  c.prepared(1, 192, 0);
  EXPECT_EQ(c.link(1).preps.size(), 3U);
}

TEST(RouterPlan, TheQueueIsOrderedByPriorityThenArrival) {
  Cluster c("PD");
  c.add(200);
  c.add(200);
  TokenRequest late = c.request(300);
  TokenRequest early = c.request(310);
  TokenRequest urgent = c.request(320);
  late.arrival_ns += 10;
  urgent.arrival_ns += 20;
  urgent.priority = -1;
  c.add(late);
  c.add(early);
  c.add(urgent);
  for (int i = 0; i < 2; ++i) c.prepared(1, 192, i);
  for (int i = 2; i < 5; ++i) c.prepared(1, 192 + 96, i);
  ASSERT_EQ(c.link(1).preps.size(), 5U);
  EXPECT_EQ(c.link(1).preps[2].request.prompt.size(), 320U);
  EXPECT_EQ(c.link(1).preps[3].request.prompt.size(), 310U);
  EXPECT_EQ(c.link(1).preps[4].request.prompt.size(), 300U);
}

TEST(RouterPlan, ADecodeEngineGetsItsBatchAndALittleMore) {
  Cluster c("D");
  for (int i = 0; i < 70; ++i) c.add(20);
  EXPECT_EQ(c.link(0).starts.size(), 66U);
  EXPECT_EQ(c.core->n_queued(), 4U);
  c.tokens(0, 0, {1}, FinishReason::kStop, 0);
  EXPECT_EQ(c.link(0).starts.size(), 67U);
}

TEST(RouterPlan, MoreChoicesThanABatchRunAlone) {
  Cluster c("D");
  const RequestId id = c.add(20, 100, 4);
  EXPECT_EQ(c.link(0).starts.size(), 1U);
  c.add(20);
  EXPECT_EQ(c.link(0).starts.size(), 1U);
  for (int choice = 0; choice < 100; ++choice) c.tokens(0, choice, {1}, FinishReason::kStop, 0);
  EXPECT_EQ(c.outcome(id).n_finished(), 100);
  EXPECT_EQ(c.link(0).starts.size(), 2U);
}

TEST(RouterPlan, NoRoomForKvGoesBackToTheHeadOfTheQueue) {
  Cluster c("PD");
  c.add(20);
  const RequestId id = c.add(200);
  c.prep_failed(1, ErrorCode::kExhausted);
  EXPECT_EQ(c.core->n_queued(), 1U);
  c.add(210);
  EXPECT_EQ(c.link(1).preps.size(), 1U) << "paused";
  EXPECT_EQ(*c.core->deadline(), c.clock.now_ns() + 100'000'000);
  c.advance_ms(99);
  EXPECT_EQ(c.link(1).preps.size(), 1U);
  c.advance_ms(1);
  ASSERT_EQ(c.link(1).preps.size(), 3U);
  EXPECT_EQ(c.link(1).preps[1].request.prompt.size(), 200U) << "it kept its place";
  // Or as soon as something ends there.
  c.prep_failed(1, ErrorCode::kExhausted, "no", 1);
  EXPECT_EQ(c.core->n_queued(), 1U);
  c.tokens(1, 0, {1}, FinishReason::kStop, 0);
  EXPECT_EQ(c.link(1).preps.size(), 4U);
  EXPECT_EQ(c.series("baton_request_retries_total"), 0) << "waiting is no failure";
  EXPECT_EQ(c.plan(id)["attempts"][0]["outcome"], "no_room");
}

TEST(RouterPlan, NoRoomOnOneEngineIsTriedOnAnother) {
  Cluster c("PDD");
  c.add(200);
  c.prep_failed(1, ErrorCode::kExhausted);
  EXPECT_EQ(c.link(2).preps.size(), 1U);
}

TEST(RouterPlan, WhatCanNeverRunAnywhereIsTheClientsError) {
  Cluster c("PDD");
  const RequestId id = c.add(200);
  c.prep_failed(1, ErrorCode::kInvalidArgument, "200 tokens never fit");
  ASSERT_EQ(c.link(2).preps.size(), 1U);
  c.prep_failed(2, ErrorCode::kInvalidArgument, "200 tokens never fit");
  EXPECT_EQ(c.outcome(id).choices[0].finish, FinishReason::kError);
  EXPECT_EQ(c.outcome(id).choices[0].code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(c.outcome(id).choices[0].error, "200 tokens never fit");
  c.expect_idle();
}

TEST(RouterPlan, TheQueueIsLimitedAndAPathIsNeeded) {
  RouterOptions options;
  options.max_queue = 3;
  Cluster c("PD", options);
  EXPECT_TRUE(c.core->check(c.request(5)));
  for (int i = 0; i < 66 + 3; ++i) c.add(20);
  const Status full = c.core->check(c.request(5));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(full.error().retryable);
  c.tokens(1, 0, {1}, FinishReason::kStop, 0);
  EXPECT_TRUE(c.core->check(c.request(5)));
  c.down(0);
  c.down(1);
  EXPECT_FALSE(c.core->check(c.request(5))) << "the queue is full again";
  c.advance_ms(30'000);
  const Status no_path = c.core->check(c.request(5));
  ASSERT_FALSE(no_path);
  EXPECT_EQ(no_path.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(no_path.error().message, "no engine is ready; try again later");
  TokenRequest leased = c.request(5);
  leased.leased.emplace();
  EXPECT_EQ(c.core->check(leased).error().code, ErrorCode::kInvalidArgument);
}

TEST(RouterPlan, RoundRobinTakesTurns) {
  RouterOptions options;
  options.policy = "round-robin";
  Cluster c("DDD", options);
  for (int i = 0; i < 6; ++i) c.add(20);
  for (int engine = 0; engine < 3; ++engine) EXPECT_EQ(c.link(engine).starts.size(), 2U);
  c.core->on_down(1, "killed");
  for (int i = 0; i < 4; ++i) c.add(20);
  EXPECT_EQ(c.link(0).starts.size() + c.link(2).starts.size(), 4U + 4U + 2U);
}

TEST(RouterPlan, PoliciesThatDontExistAreRefusedByName) {
  const auto refused = make_policy("prefix");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("'prefix'"), std::string::npos);
  EXPECT_NE(refused.error().message.find("least-loaded"), std::string::npos);
  EXPECT_EQ((*make_policy("auto"))->name(), "least-loaded");
}

TEST(RouterPlan, OnlyTheLatestPlansAreKept) {
  RouterOptions options;
  options.max_plans = 2;
  Cluster c("B", options);
  const RequestId first = c.add(5);
  c.add(5);
  const RequestId third = c.add(5);
  EXPECT_FALSE(c.core->plan_json("cmpl-" + std::to_string(first.value)).has_value());
  EXPECT_TRUE(c.core->plan_json("cmpl-" + std::to_string(third.value)).has_value());
  EXPECT_FALSE(c.core->plan_json("cmpl-other").has_value());
}

TEST(RouterPlan, EnginesAsJson) {
  Cluster c("PD");
  EngineState state;
  state.n_running = 3;
  state.blocks_used = 7;
  state.blocks_leased = 2;
  c.core->on_state(1, state);
  c.down(0, "connection closed");
  c.core->set_supervised(0, "http://127.0.0.1:1", {.cpus = {4}, .n_restarts = 2, .state = "dead"});
  const nlohmann::json engines = nlohmann::json::parse(c.core->engines().json());
  ASSERT_EQ(engines.size(), 2U);
  EXPECT_EQ(engines[0]["id"], "0");
  EXPECT_EQ(engines[0]["state"], "dead");
  EXPECT_EQ(engines[0]["url"], "http://127.0.0.1:1");
  EXPECT_EQ(engines[0]["restarts"], 2);
  EXPECT_EQ(engines[0]["last_error"], "connection closed");
  EXPECT_EQ(engines[1]["state"], "ready");
  EXPECT_EQ(engines[1]["role"], "decode");
  EXPECT_EQ(engines[1]["pid"], 101);
  EXPECT_EQ(engines[1]["running"], 3);
  EXPECT_EQ(engines[1]["kv_blocks_total"], 1000);
  EXPECT_EQ(engines[1]["kv_blocks_used"], 7);
  EXPECT_EQ(engines[1]["kv_blocks_leased"], 2);
  EXPECT_TRUE(engines[1]["last_error"].is_null());
  state.ready = false;
  c.core->on_state(1, state);
  EXPECT_EQ(nlohmann::json::parse(c.core->engines().json())[1]["state"], "draining");
}

}  // namespace
}  // namespace baton::router
