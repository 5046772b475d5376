// Engines that fail, die or give a request up.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "router/core_test_support.h"

namespace baton::router {
namespace {

// ---- Verbs that fail. ----

TEST(RouterFailure, RemoteSendFailsAndAnotherPrefillEngineDoesIt) {
  Cluster c("PPD");
  const RequestId id = c.add(200);
  c.prepared(2);
  const RequestId attempt = c.link(2).starts[0].request.id;
  c.send_failed(0, ErrorCode::kUnavailable);
  EXPECT_EQ(c.link(2).cancels, whole({attempt})) << "it waits for KV that won't come";
  ASSERT_EQ(c.link(2).preps.size(), 2U);
  c.prepared(2);
  EXPECT_EQ(c.link(0).sends.size(), 1U);
  ASSERT_EQ(c.link(1).sends.size(), 1U);
  EXPECT_NE(c.link(1).sends[0].request.id, attempt);
  c.sent(1);
  c.tokens(2, 0, {1}, FinishReason::kStop);
  EXPECT_EQ(c.outcome(id).choices[0].tokens, Tokens{1});
  EXPECT_EQ(c.series("baton_request_retries_total", R"(reason="remote_send")"), 1);
  EXPECT_EQ(c.plan(id)["attempts"].size(), 2U);
  c.expect_idle();
}

TEST(RouterFailure, AFullPrefillEngineIsAskedAgainLater) {
  Cluster c("PD");
  c.add(200);
  c.prepared(1);
  c.send_failed(0, ErrorCode::kExhausted);
  EXPECT_EQ(c.core->n_queued(), 1U);
  EXPECT_EQ(c.link(1).preps.size(), 1U);
  c.advance_ms(100);
  EXPECT_EQ(c.link(1).preps.size(), 2U);
  EXPECT_EQ(c.series("baton_request_retries_total"), 0);
}

TEST(RouterFailure, AnAnswerToRemoteSendThatIsLostAfterTheKvArrivedCostsNothing) {
  Cluster c("PD");
  const RequestId id = c.add(200);
  c.prepared(1);
  c.tokens(1, 0, {1});
  c.down(0);
  c.tokens(1, 0, {2}, FinishReason::kStop);
  EXPECT_EQ(c.outcome(id).choices[0].tokens, (Tokens{1, 2}));
  EXPECT_TRUE(c.link(1).cancels.empty());
  c.expect_idle();
}

TEST(RouterFailure, StartGenerateFails) {
  Cluster c("PDD");
  const RequestId id = c.add(200);
  c.prepared(1);
  c.start_failed(1, ErrorCode::kNotFound);
  EXPECT_EQ(c.link(1).releases, std::vector{LeaseId{1}});
  EXPECT_TRUE(c.link(1).cancels.empty());
  EXPECT_EQ(c.link(0).cancels.size(), 1U) << "nobody waits for what it sends";
  ASSERT_EQ(c.link(2).preps.size(), 1U) << "not at the engine that failed";
  c.hand_over(2, 0);
  c.tokens(2, 0, {1}, FinishReason::kStop);
  EXPECT_EQ(c.outcome(id).choices[0].finish, FinishReason::kStop);
  c.expect_idle();
}

TEST(RouterFailure, ThreeFailuresEndTheRequest) {
  Cluster c("PD");
  const RequestId id = c.add(20);
  for (int i = 0; i < 3; ++i) c.start_failed(1, ErrorCode::kInternal);
  EXPECT_EQ(c.link(1).starts.size(), 3U);
  EXPECT_EQ(c.outcome(id).choices[0].finish, FinishReason::kError);
  EXPECT_EQ(c.outcome(id).choices[0].code, ErrorCode::kUnavailable);
  EXPECT_NE(c.outcome(id).choices[0].error.find("3 failures"), std::string::npos);
  EXPECT_NE(c.outcome(id).choices[0].error.find("engine 1 (decode)"), std::string::npos);
  c.expect_idle();
}

TEST(RouterFailure, AnEnginesErrorIsTheClients) {
  Cluster c("B");
  const RequestId id = c.add(20);
  RequestUpdate update;
  update.id = c.link(0).starts[0].request.id;
  update.events.resize(1);
  update.events[0].finish = FinishReason::kError;
  update.events[0].error = "not a number";
  c.update(0, update);
  EXPECT_EQ(c.outcome(id).choices[0].error, "not a number");
  c.expect_idle();
}

// ---- Death of an engine, in each state. ----

TEST(RouterDeath, PrefillEngineDiesBeforeTheKvArrived) {
  Cluster c("PPD");
  const RequestId id = c.add(200);
  c.prepared(2);
  const RequestId attempt = c.link(2).starts[0].request.id;
  c.down(0);
  EXPECT_EQ(c.link(2).cancels, whole({attempt}));
  EXPECT_TRUE(c.link(0).cancels.empty()) << "the dead are not spoken to";
  c.hand_over(2, 1);
  c.tokens(2, 0, {1}, FinishReason::kStop);
  EXPECT_EQ(c.outcome(id).choices[0].finish, FinishReason::kStop);
  EXPECT_EQ(c.series("baton_request_retries_total", R"(reason="engine_down")"), 1);
  c.expect_idle();
}

TEST(RouterDeath, DecodeEngineDiesWhilePreparing) {
  Cluster c("PDD");
  c.add(200);
  c.down(1);
  EXPECT_EQ(c.link(2).preps.size(), 1U);
  c.prep_failed(1, ErrorCode::kUnavailable);  // comes late
  EXPECT_EQ(c.link(2).preps.size(), 1U);
  EXPECT_EQ(c.core->engines()[1].load.n_requests, 0);
}

TEST(RouterDeath, DecodeEngineDiesBeforeTheFirstToken) {
  Cluster c("PDD");
  const RequestId id = c.add(200, 2);
  c.prepared(1);
  const RequestId attempt = c.link(1).starts[0].request.id;
  c.down(1);
  EXPECT_EQ(c.link(0).cancels, whole({attempt})) << "it needn't compute that any more";
  c.hand_over(2, 0);
  EXPECT_EQ(c.link(2).starts[0].request.n_choices, 2) << "planned afresh, in one piece";
  c.tokens(2, 0, {1}, FinishReason::kStop);
  c.tokens(2, 1, {2}, FinishReason::kStop);
  EXPECT_EQ(c.outcome(id).n_finished(), 2);
  c.expect_idle();
}

// Row 14: decode dies mid-stream; the request resumes elsewhere from prompt + tokens already sent.
TEST(RouterDeath, Row14_ResumesFromTheTokensAlreadySent) {
  Cluster c("PDD");
  TokenRequest request = c.request(200, 1, 8);
  request.n_prompt_logprobs = 0;
  request.n_logprobs = 0;
  const RequestId id = c.add(request);
  c.hand_over(1, 0);
  c.tokens(1, 0, {1, 2, 3});
  c.down(1);
  ASSERT_EQ(c.link(2).preps.size(), 1U);
  EXPECT_EQ(c.link(2).preps[0].request.prompt, request.prompt);
  EXPECT_EQ(c.link(2).preps[0].request.end, 192) << "the same prompt and end: the same bits";
  EXPECT_TRUE(c.link(2).preps[0].request.match_prefix);
  c.hand_over(2, 0);
  const TokenRequest& again = c.link(2).starts[0].request;
  EXPECT_EQ(again.output, (Tokens{1, 2, 3}));
  EXPECT_EQ(again.max_tokens, 8);
  EXPECT_EQ(again.sampling.seed, request.sampling.seed);
  EXPECT_FALSE(again.n_prompt_logprobs.has_value()) << "they have been sent";
  // The dead engine's words come late.
  c.tokens(1, 0, {4, 5});
  c.tokens(2, 0, {4});
  c.tokens(2, 0, {5}, FinishReason::kStop);
  EXPECT_EQ(c.outcome(id).choices[0].tokens, (Tokens{1, 2, 3, 4, 5}));
  EXPECT_EQ(c.plan(id)["attempts"][1]["resumed_tokens"], 3);
  c.expect_idle();
}

TEST(RouterDeath, EachChoiceGoesOnAlone) {
  Cluster c("BB");
  const RequestId id = c.add(200, 3);
  c.tokens(0, 0, {1, 2});
  c.tokens(0, 1, {3}, FinishReason::kStop);
  c.down(0);
  ASSERT_EQ(c.link(1).starts.size(), 2U) << "the one that had finished stays finished";
  const TokenRequest& first = c.link(1).starts[0].request;
  const TokenRequest& third = c.link(1).starts[1].request;
  EXPECT_EQ(first.first_choice, 0);
  EXPECT_EQ(first.n_choices, 1);
  EXPECT_EQ(first.output, (Tokens{1, 2}));
  EXPECT_EQ(third.first_choice, 2);
  EXPECT_TRUE(third.output.empty());
  c.tokens(1, 0, {9}, FinishReason::kStop, 0);
  c.tokens(1, 2, {8}, FinishReason::kStop, 1);
  EXPECT_EQ(c.outcome(id).choices[0].tokens, (Tokens{1, 2, 9}));
  EXPECT_EQ(c.outcome(id).choices[1].tokens, Tokens{3});
  EXPECT_EQ(c.outcome(id).choices[2].tokens, Tokens{8});
  c.expect_idle();
}

TEST(RouterDeath, AllTokensWereSentButNotTheWordThatItWasTheLast) {
  Cluster c("BB");
  const RequestId id = c.add(20, 1, 2);
  c.tokens(0, 0, {1, 2});
  c.down(0);
  EXPECT_EQ(c.outcome(id).choices[0].finish, FinishReason::kLength);
  EXPECT_TRUE(c.link(1).starts.empty());
  c.expect_idle();
}

TEST(RouterDeath, WaitsForARestart) {
  Cluster c("B");
  const RequestId id = c.add(20);
  c.tokens(0, 0, {1});
  c.down(0);
  EXPECT_EQ(c.core->n_queued(), 1U);
  EXPECT_EQ(*c.core->deadline(), c.clock.now_ns() + 30'000'000'000);
  c.advance_ms(29'999);
  EXPECT_FALSE(c.outcome(id).choices[0].finish.has_value());
  c.restart(0);
  ASSERT_EQ(c.link(0).starts.size(), 2U);
  EXPECT_EQ(c.link(0).starts[1].request.output, Tokens{1});
  EXPECT_EQ(c.series("baton_engine_restarts_total", R"(engine="0")"), 1);
}

TEST(RouterDeath, ThirtySecondsWithoutAPathEndTheRequest) {
  Cluster c("PDD");
  const RequestId running = c.add(20, 2);
  c.tokens(1, 1, {5});
  c.down(2);
  c.down(1);
  c.advance_ms(15'000);
  c.restart(2);
  EXPECT_EQ(c.link(2).starts.size(), 2U);
  c.down(2);
  c.advance_ms(29'999);
  EXPECT_EQ(c.outcome(running).n_finished(), 0) << "counted from the last path on";
  c.advance_ms(1);
  EXPECT_EQ(c.outcome(running).n_finished(), 2);
  EXPECT_EQ(c.outcome(running).choices[0].finish, FinishReason::kError);
  EXPECT_EQ(c.outcome(running).choices[0].code, ErrorCode::kUnavailable);
  c.expect_idle();
}

// Row 17: failures after hours idle.
TEST(RouterDeath, Row17_ADeathAndAHandoffAfterAHundredDaysIdle) {
  Cluster c("PD");
  for (int i = 0; i < 2; ++i) {
    for (int day = 0; day < 100; ++day) c.advance_ms(24 * 3600 * 1000);
    const RequestId id = c.add(200);
    c.hand_over(1, 0);
    c.tokens(1, 0, {1}, FinishReason::kStop);
    EXPECT_EQ(c.outcome(id).choices[0].finish, FinishReason::kStop);
    EXPECT_EQ(c.plan(id)["attempts"][0]["plan"], "disaggregated");
    c.expect_idle();
    c.down(0);
    c.down(1);
    c.restart(0);
    c.restart(1);
  }
}

TEST(RouterDeath, AnEngineThatIsNotReadyGetsNothingNew) {
  Cluster c("BB");
  EngineState state;
  state.ready = false;
  state.reason = "draining";
  c.core->on_state(0, state);
  c.add(20);
  c.add(20);
  EXPECT_TRUE(c.link(0).starts.empty());
  EXPECT_EQ(c.link(1).starts.size(), 2U);
}

TEST(RouterDeath, EndAllEndsAll) {
  Cluster c("PD");
  const RequestId queued = c.add(200);
  c.add(200);
  c.prepared(1, 0, 0);
  const RequestId third = c.add(200);
  c.core->end_all("the router stops");
  EXPECT_EQ(c.outcome(queued).choices[0].error, "the router stops");
  EXPECT_EQ(c.outcome(third).choices[0].finish, FinishReason::kError);
  EXPECT_EQ(c.link(1).cancels.size(), 1U);
  EXPECT_EQ(c.link(0).cancels.size(), 1U);
  c.expect_idle();
}

// ---- Given up. ----

TEST(RouterGivenUp, GoesOnFromWhatItHas) {
  Cluster c("D");
  const RequestId id = c.add(20);
  c.tokens(0, 0, {1});
  c.tokens(0, 0, {2}, FinishReason::kGivenUp);
  EXPECT_TRUE(c.link(0).cancels.empty()) << "the engine knows";
  EXPECT_EQ(c.link(0).starts.size(), 1U) << "it was short of room";
  c.advance_ms(100);
  ASSERT_EQ(c.link(0).starts.size(), 2U);
  EXPECT_EQ(c.link(0).starts[1].request.output, (Tokens{1, 2}));
  c.tokens(0, 0, {3}, FinishReason::kStop);
  EXPECT_EQ(c.outcome(id).choices[0].tokens, (Tokens{1, 2, 3}));
  EXPECT_EQ(c.series("baton_request_retries_total", R"(reason="given_up")"), 1);
  c.expect_idle();
}

TEST(RouterGivenUp, OneOfSeveralChoices) {
  Cluster c("DD");
  const RequestId id = c.add(20, 2);
  c.tokens(0, 0, {1});
  c.tokens(0, 1, {}, FinishReason::kGivenUp);
  ASSERT_EQ(c.link(1).starts.size(), 1U);
  EXPECT_EQ(c.link(1).starts[0].request.first_choice, 1);
  c.tokens(0, 0, {2}, FinishReason::kStop);
  c.tokens(1, 1, {3}, FinishReason::kStop);
  EXPECT_EQ(c.outcome(id).choices[0].tokens, (Tokens{1, 2}));
  EXPECT_EQ(c.outcome(id).choices[1].tokens, Tokens{3});
  c.expect_idle();
}

TEST(RouterGivenUp, WithoutATokenInBetweenItIsAFailure) {
  Cluster c("D");
  const RequestId id = c.add(20);
  for (int i = 0; i < 10; ++i) {
    c.tokens(0, 0, {1}, FinishReason::kGivenUp);
    c.advance_ms(100);
    if (i == 6) break;
  }
  EXPECT_FALSE(c.outcome(id).choices[0].finish.has_value()) << "it gets on, if slowly";
  for (int i = 0; i < 3; ++i) {
    c.tokens(0, 0, {}, FinishReason::kGivenUp);
    c.advance_ms(100);
  }
  EXPECT_EQ(c.outcome(id).choices[0].finish, FinishReason::kError);
  c.expect_idle();
}

TEST(RouterGivenUp, WhileTheSendersLogprobsAreAwaited) {
  Cluster c("PD");
  TokenRequest request = c.request(200);
  request.n_prompt_logprobs = 1;
  const RequestId id = c.add(std::move(request));
  c.prepared(1);
  c.tokens(1, 0, {}, FinishReason::kGivenUp);
  EXPECT_EQ(c.link(0).cancels.size(), 1U);
  EXPECT_EQ(c.link(1).preps.size(), 2U);
  c.hand_over(1, 0);
  c.tokens(1, 0, {1}, FinishReason::kStop);
  EXPECT_EQ(c.outcome(id).prompt->prompt_logprobs.size(), 200U);
  c.expect_idle();
}

}  // namespace
}  // namespace baton::router
