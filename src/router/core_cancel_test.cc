// Clients that cancel, and engines that send garbage.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "router/core_test_support.h"

namespace baton::router {
namespace {

// ---- Cancel in every state: exactly the right cancels and releases. ----

TEST(RouterCancel, WhileQueued) {
  Cluster c("PD");
  c.add(200);
  c.add(200);
  const RequestId id = c.add(200);
  ASSERT_EQ(c.core->n_queued(), 1U);
  c.cancel(id);
  EXPECT_EQ(c.core->n_queued(), 0U);
  EXPECT_TRUE(c.link(0).cancels.empty());
  EXPECT_TRUE(c.link(1).cancels.empty());
  EXPECT_TRUE(c.outcome(id).choices.empty()) << "not even a finish";
}

TEST(RouterCancel, WhilePreparing) {
  Cluster c("PD");
  const RequestId id = c.add(200);
  c.cancel(id);
  EXPECT_EQ(c.core->engines()[1].load.n_requests, 0);
  EXPECT_TRUE(c.link(1).releases.empty()) << "the lease is not known yet";
  c.prepared(1);
  EXPECT_EQ(c.link(1).releases, std::vector{LeaseId{1}});
  EXPECT_TRUE(c.link(1).cancels.empty());
  EXPECT_TRUE(c.link(1).starts.empty());
  EXPECT_TRUE(c.link(0).sends.empty());
  c.expect_idle();
}

TEST(RouterCancel, WhilePreparingWhatThenFails) {
  Cluster c("PD");
  c.cancel(c.add(200));
  c.prep_failed(1, ErrorCode::kExhausted);
  EXPECT_TRUE(c.link(1).releases.empty());
  c.expect_idle();
}

TEST(RouterCancel, WhileSending) {
  Cluster c("PD");
  const RequestId id = c.add(200);
  c.prepared(1);
  const RequestId attempt = c.link(1).starts[0].request.id;
  c.cancel(id);
  EXPECT_EQ(c.link(1).cancels, whole({attempt}));
  EXPECT_EQ(c.link(0).cancels, whole({attempt}));
  EXPECT_TRUE(c.link(1).releases.empty()) << "start_generate took the lease over";
  c.expect_idle();
  // What still comes changes nothing.
  c.sent(0);
  c.started(1);
  c.tokens(1, 0, {1});
  EXPECT_TRUE(c.outcome(id).choices.empty());
  EXPECT_EQ(c.link(1).cancels.size(), 1U);
  c.expect_idle();
}

TEST(RouterCancel, WhileSendingWhenStartGenerateFails) {
  Cluster c("PD");
  c.cancel((c.add(200)));
  c.prepared(1);
  const RequestId id = c.add(200);
  c.prepared(1);
  c.cancel(id);
  c.start_failed(1, ErrorCode::kUnavailable);
  EXPECT_EQ(c.link(1).releases, (std::vector{LeaseId{1}, LeaseId{2}}))
      << "the engine didn't take the lease over";
  c.expect_idle();
}

TEST(RouterCancel, WhileDecoding) {
  Cluster c("PD");
  const RequestId id = c.add(200);
  c.hand_over(1, 0);
  c.tokens(1, 0, {1, 2});
  c.cancel(id);
  EXPECT_EQ(c.link(1).cancels, whole({c.link(1).starts[0].request.id}));
  EXPECT_TRUE(c.link(0).cancels.empty()) << "it has sent all";
  EXPECT_TRUE(c.link(1).releases.empty());
  EXPECT_FALSE(c.outcome(id).choices[0].finish.has_value());
  c.expect_idle();
  EXPECT_EQ(c.series("baton_router_requests_total", R"(engine="1",outcome="cancelled")"), 1);
}

TEST(RouterCancel, AfterTheEndOrOfNobody) {
  Cluster c("B");
  const RequestId id = c.add(20);
  c.tokens(0, 0, {1}, FinishReason::kStop);
  c.cancel(id);
  c.cancel(RequestId{424242});
  EXPECT_TRUE(c.link(0).cancels.empty());
}

TEST(RouterCancel, OneChoiceOfSeveral) {
  Cluster c("B");
  const RequestId id = c.add(20, 3);
  const RequestId attempt = c.link(0).starts[0].request.id;
  c.tokens(0, 1, {1});
  c.cancel(id, 1);
  c.cancel(id, 1);
  c.cancel(id, 7);
  EXPECT_EQ(c.link(0).cancels, (std::vector<FakeLink::Cancel>{{attempt, 1}}));
  c.tokens(0, 1, {2});
  EXPECT_EQ(c.outcome(id).choices[1].tokens, Tokens{1});
  c.tokens(0, 0, {1}, FinishReason::kStop);
  c.cancel(id, 2);
  EXPECT_EQ(c.link(0).cancels.back(), (FakeLink::Cancel{attempt, std::nullopt}));
  c.expect_idle();
}

TEST(RouterCancel, OneChoiceBeforeAnyEngineKnowsOfIt) {
  Cluster c("PD");
  const RequestId id = c.add(200, 2);
  c.cancel(id, 0);
  c.prepared(1);
  const TokenRequest& start = c.link(1).starts[0].request;
  EXPECT_EQ(start.n_choices, 2);
  EXPECT_EQ(c.link(1).cancels, (std::vector<FakeLink::Cancel>{{start.id, 0}}));
  c.tokens(1, 1, {1}, FinishReason::kStop);
  EXPECT_EQ(c.outcome(id).choices.count(0), 0U);
  c.sent(0);
  c.expect_idle();
}

// ---- Garbage. ----

TEST(RouterGarbage, WhatBelongsToNobodyIsDropped) {
  Cluster c("BB");
  const RequestId id = c.add(20, 2);
  const RequestId attempt = c.link(0).starts[0].request.id;
  RequestUpdate unknown;
  unknown.id = RequestId{9999};
  unknown.events.resize(1);
  unknown.events[0].tokens = {1};
  c.update(0, unknown);
  RequestUpdate elsewhere = unknown;
  elsewhere.id = attempt;
  c.update(1, elsewhere);  // the id is known, but not to this engine
  c.tokens(0, 7, {1});
  c.tokens(0, -1, {1});
  EXPECT_TRUE(c.outcome(id).choices.empty());
  c.tokens(0, 0, {1}, FinishReason::kStop);
  c.tokens(0, 0, {2});
  c.tokens(0, 0, {}, FinishReason::kGivenUp);
  c.tokens(0, 1, {3}, FinishReason::kStop);
  EXPECT_EQ(c.outcome(id).choices[0].tokens, Tokens{1});
  EXPECT_EQ(c.outcome(id).choices[1].tokens, Tokens{3});
  c.expect_idle();
}

TEST(RouterGarbage, WhatCantBeRightIsAFailureOfTheEngine) {
  struct Case {
    const char* what;
    std::function<void(Cluster&, RequestId attempt)> send;
  };
  const auto event = [](RequestId id) {
    RequestUpdate out;
    out.id = id;
    out.prompt = PromptInfo{};
    out.events.resize(1);
    out.events[0].tokens = {1};
    return out;
  };
  const std::vector<Case> cases = {
      {"a token outside of the vocabulary",
       [&](Cluster& c, RequestId id) {
         RequestUpdate update = event(id);
         update.events[0].tokens = {1, Cluster::kVocab};
         c.update(0, update);
       }},
      {"a negative token",
       [&](Cluster& c, RequestId id) {
         RequestUpdate update = event(id);
         update.events[0].tokens = {-1};
         c.update(0, update);
       }},
      {"more tokens than asked for",
       [&](Cluster& c, RequestId id) {
         RequestUpdate update = event(id);
         update.events[0].tokens.assign(9, 1);
         c.update(0, update);
       }},
      {"log probabilities that nobody asked for",
       [&](Cluster& c, RequestId id) {
         RequestUpdate update = event(id);
         update.events[0].logprobs.resize(1);
         c.update(0, update);
       }},
      {"tokens before PromptInfo",
       [&](Cluster& c, RequestId id) {
         RequestUpdate update = event(id);
         update.prompt.reset();
         c.update(0, update);
       }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    Cluster c("BB");
    const RequestId id = c.add(20);
    const RequestId attempt = c.link(0).starts[0].request.id;
    one.send(c, attempt);
    EXPECT_EQ(c.link(0).cancels, whole({attempt}));
    ASSERT_EQ(c.link(1).starts.size(), 1U);
    c.tokens(1, 0, {7}, FinishReason::kStop);
    EXPECT_EQ(c.outcome(id).choices[0].tokens, Tokens{7});
    EXPECT_EQ(c.series("baton_request_retries_total", R"(reason="corrupt")"), 1);
    c.expect_idle();
  }
}

TEST(RouterGarbage, AnswersThatCantBeRight) {
  Cluster c("PDD");
  const RequestId id = c.add(200);
  PreparedReceive too_much;
  too_much.lease = LeaseId{49};
  too_much.n_matched = 208;
  c.link(1).preps[0].done(too_much);
  c.core->tick();
  EXPECT_EQ(c.link(1).releases.size(), 1U);
  ASSERT_EQ(c.link(2).preps.size(), 1U);
  PreparedReceive short_of_blocks;
  short_of_blocks.lease = LeaseId{50};
  c.link(2).preps[0].done(short_of_blocks);
  c.core->tick();
  EXPECT_EQ(c.link(2).releases, std::vector{LeaseId{50}});
  EXPECT_FALSE(c.outcome(id).choices[0].finish.has_value());
}

TEST(RouterGarbage, AWrongNumberOfPromptLogprobs) {
  Cluster c("PPD");
  TokenRequest request = c.request(200);
  request.n_prompt_logprobs = 0;
  const RequestId id = c.add(std::move(request));
  c.prepared(2);
  c.link(0).sends[0].done(SentKv{});
  c.core->tick();
  EXPECT_EQ(c.link(2).cancels.size(), 1U);
  c.hand_over(2, 1);
  c.tokens(2, 0, {1}, FinishReason::kStop);
  EXPECT_EQ(c.outcome(id).prompt->prompt_logprobs.size(), 200U);
  c.expect_idle();
}

}  // namespace
}  // namespace baton::router
