// What goes wrong in and around a handoff. "Row N" is a line of the list of failures of other
// servers (docs/failures.md): none of them may happen here.
#include <gtest/gtest.h>

#include <algorithm>

#include "testing/handoff_fixture.h"

namespace baton::engine {
namespace {

using testing::handoff_options;
using testing::HandoffFixture;
using testing::make_request;
using testing::random_tokens;
using testing::slow_prefill;
using testing::tokens_alone;

constexpr int64_t kLeaseNs = 1'000'000'000;

class HandoffFailures : public ::testing::Test {
 protected:
  HandoffFixture pair_{slow_prefill(), {handoff_options(Role::kDecode)}};
  const TokenRequest request_ = make_request(random_tokens(600, 1), 20, 1);
};

TEST_F(HandoffFailures, Row1CancelBetweenPrefillAndAdmission) {
  const auto ids = pair_.hand_off(request_);
  while (!pair_.answer(ids.send)) pair_.prefill.step();
  pair_.decode.core->cancel(ids.request, std::nullopt);
  EXPECT_EQ(pair_.leftovers(), "");
  // And when the client goes before the decode engine was told.
  const auto prepared = pair_.prepare(make_request(random_tokens(600, 2), 1)).value();
  const RequestId sent = pair_.send(make_request(random_tokens(600, 2), 1), prepared);
  pair_.run();
  EXPECT_TRUE(pair_.delivered(sent));
  pair_.decode.core->release(prepared.lease);
  EXPECT_EQ(pair_.leftovers(), "");
  EXPECT_EQ(pair_.health(), "");
}

TEST_F(HandoffFailures, Row2BothSidesCancel) {
  for (const bool decode_first : {true, false}) {
    const auto ids = pair_.hand_off(request_);
    pair_.step();
    pair_.step();
    if (decode_first) pair_.decode.core->cancel(ids.request, std::nullopt);
    pair_.prefill.core->cancel(ids.send, std::nullopt);
    if (!decode_first) pair_.decode.core->cancel(ids.request, std::nullopt);
    EXPECT_EQ((*pair_.answer(ids.send)).error().code, ErrorCode::kCancelled);
    EXPECT_EQ(pair_.leftovers(), "");
  }
  EXPECT_EQ(pair_.health(), "");
}

TEST_F(HandoffFailures, Row3CancelAfterTheSendIsDone) {
  const auto ids = pair_.hand_off(request_);
  while (!pair_.answer(ids.send)) pair_.prefill.step();
  pair_.prefill.core->cancel(ids.send, std::nullopt);
  EXPECT_TRUE(pair_.delivered(ids.send));
  pair_.run();
  EXPECT_EQ(pair_.decode.tokens(ids.request), tokens_alone(request_));
  EXPECT_EQ(pair_.health(), "");
}

TEST_F(HandoffFailures, Row4APreemptedRequestIsGivenUpOnceAndLeavesNothing) {
  HandoffFixture pair(slow_prefill(), {.engine = handoff_options(Role::kDecode), .n_blocks = 30});
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < 2; ++i) {
    auto request = make_request(random_tokens(160, i), 200, i);
    request.n_choices = 2;
    ids.push_back(pair.hand_off(request).request);
  }
  pair.run();
  int n_given_up = 0;
  for (const RequestId id : ids) {
    const auto whole = testing::run_alone(
        [&] {
          auto request =
              make_request(random_tokens(160, uint32_t(id.value - 1)), 200, id.value - 1);
          request.n_choices = 2;
          return request;
        }(),
        handoff_options());
    for (int c = 0; c < 2; ++c) {
      const auto& got = pair.choice(id, c);
      const auto& expected = whole.choices.at(c).tokens;
      ASSERT_TRUE(got.finish.has_value());
      EXPECT_FALSE(got.after_finish);
      ASSERT_LE(got.tokens.size(), expected.size());
      EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), expected.begin()));
      if (got.finish != FinishReason::kGivenUp) continue;
      ++n_given_up;
      EXPECT_EQ(got.error, "preempted: no KV blocks were left");
      EXPECT_LT(got.tokens.size(), expected.size());
    }
    pair.decode.core->cancel(id, std::nullopt);
  }
  EXPECT_GT(n_given_up, 0);
  EXPECT_EQ(pair.leftovers(), "");
}

// The sender is told to stop in the middle; the receiver, whom nobody tells, gives up by itself.
TEST_F(HandoffFailures, Row5CancelledInTheMiddleOfATransfer) {
  const auto ids = pair_.hand_off(request_);
  pair_.step();
  pair_.step();
  pair_.prefill.core->cancel(ids.send, std::nullopt);
  const int64_t begin_ns = pair_.decode.clock.now_ns();
  while (!pair_.choice(ids.request).finish) {
    pair_.run();
    pair_.decode.clock.advance(10'000'000);
  }
  EXPECT_EQ(pair_.choice(ids.request).finish, FinishReason::kGivenUp);
  EXPECT_LE(pair_.decode.clock.now_ns() - begin_ns, kLeaseNs + 20'000'000);
  EXPECT_EQ(pair_.health(), "");
}

TEST_F(HandoffFailures, APassThatNobodyNeedsAnyMoreEndsAfterTheLayer) {
  const auto ids = pair_.hand_off(request_);
  pair_.prefill.step();
  std::vector<int> layers;
  pair_.prefill.model.on_layer = [&](int layer) {
    if (layers.empty()) pair_.decode.core->cancel(ids.request, std::nullopt);
    layers.push_back(layer);
  };
  pair_.prefill.step();
  EXPECT_EQ(layers, std::vector<int>{0});
  ASSERT_TRUE(pair_.answer(ids.send));
  EXPECT_EQ((*pair_.answer(ids.send)).error().code, ErrorCode::kUnavailable);
  pair_.prefill.model.on_layer = nullptr;
  EXPECT_EQ(pair_.leftovers(), "");
  // What was computed before may be matched, the half pass may not.
  const auto again = pair_.hand_off(request_);
  pair_.run();
  EXPECT_EQ(pair_.decode.tokens(again.request), tokens_alone(request_));
  EXPECT_EQ(pair_.health(), "");
}

TEST_F(HandoffFailures, Row6CancelledSendsDoNotHoldUpTheQueue) {
  std::vector<RequestId> sends;
  std::vector<LeaseId> leases;
  for (uint32_t i = 0; i < 10; ++i) {
    const auto request = make_request(random_tokens(600, i), 1);
    const auto prepared = pair_.prepare(request).value();
    sends.push_back(pair_.send(request, prepared));
    leases.push_back(prepared.lease);
  }
  pair_.step();
  for (const RequestId id : sends) pair_.prefill.core->cancel(id, std::nullopt);
  const auto last = pair_.hand_off(request_);
  const int64_t n_before = pair_.prefill.model.n_passes();
  while (!pair_.answer(last.send)) pair_.step();
  EXPECT_EQ(pair_.prefill.model.n_passes() - n_before, 5) << "nothing but its own chunks";
  pair_.run();
  for (const LeaseId lease : leases) pair_.decode.core->release(lease);
  EXPECT_EQ(pair_.health(), "");
}

// Rows 7 and 8: nobody comes, no new work either. (The idle thread is engine_test.cc's.)
TEST_F(HandoffFailures, Row8NobodyComesForALease) {
  for (const bool sent : {false, true}) {
    const auto prepared = pair_.prepare(request_).value();
    if (sent) pair_.send(request_, prepared);
    pair_.run();
    EXPECT_EQ(pair_.decode.blocks().leased, 38);
    ASSERT_TRUE(pair_.decode.core->next_poll_ns());
    for (int64_t waited = 0; waited < kLeaseNs; waited += 10'000'000) {
      pair_.decode.clock.advance(10'000'000);
      EXPECT_FALSE(pair_.decode.step());
    }
    EXPECT_EQ(pair_.leftovers(), "");
    EXPECT_FALSE(pair_.decode.core->next_poll_ns()) << "nothing to wake up for";
  }
  EXPECT_EQ(pair_.health(), "");
}

TEST_F(HandoffFailures, ProgressKeepsALeaseAndItsEndLetsItGo) {
  auto prefill = slow_prefill();
  HandoffFixture pair(std::move(prefill), {handoff_options(Role::kDecode)});
  const auto ids = pair.hand_off(request_);
  // Each chunk takes 0.8 leases.
  for (int i = 0; i < 8; ++i) {
    pair.step();
    pair.decode.clock.advance(kLeaseNs * 4 / 10);
    pair.decode.step();
    pair.decode.clock.advance(kLeaseNs * 4 / 10);
  }
  pair.run();
  EXPECT_EQ(pair.decode.tokens(ids.request), tokens_alone(request_));
  EXPECT_EQ(pair.leftovers(), "");
}

// A send waits behind another one for longer than its lease.
TEST_F(HandoffFailures, WaitingForItsTurnKeepsALeaseToo) {
  auto prefill = slow_prefill();
  prefill.n_blocks = 130;
  HandoffFixture pair(std::move(prefill), {handoff_options(Role::kDecode)});
  const auto first = make_request(random_tokens(2000, 2), 1);
  const auto prepared = pair.decode.core->prepare([&] {
    PrepareReceive prepare;
    prepare.prompt = first.prompt;
    prepare.end = 1984;
    prepare.lease_ns = 100 * kLeaseNs;
    return prepare;
  }());
  pair.send(first, *prepared);
  pair.step();
  const auto ids = pair.hand_off(request_);
  for (int i = 0; i < 12; ++i) {
    pair.decode.clock.advance(kLeaseNs / 2);
    pair.step();
  }
  EXPECT_EQ(pair.prefill.core->stats().n_waiting, 1);
  pair.run();
  EXPECT_EQ(pair.decode.tokens(ids.request), tokens_alone(request_));
  pair.decode.core->release(prepared->lease);
  EXPECT_EQ(pair.health(), "");
}

// Row 17: failures after hours idle. (Its connections are cluster_test.cc's.)
TEST_F(HandoffFailures, Row17_AfterAHundredDaysIdle) {
  constexpr int64_t kDayNs = int64_t{24} * 3600 * 1'000'000'000;
  const auto before = pair_.hand_off(request_);
  pair_.run();
  EXPECT_EQ(pair_.decode.tokens(before.request), tokens_alone(request_));
  ASSERT_TRUE(pair_.prepare(make_request(random_tokens(300, 2), 5))) << "nobody comes for it";
  for (int day = 0; day < 100; ++day) {
    pair_.prefill.clock.advance(kDayNs);
    pair_.decode.clock.advance(kDayNs);
    pair_.run();
    EXPECT_FALSE(pair_.decode.core->next_poll_ns()) << "nothing to wake up for";
  }
  EXPECT_EQ(pair_.leftovers(), "");
  const auto prepared = pair_.prepare(request_).value();
  EXPECT_EQ(prepared.n_matched, 592) << "what was cached still is";
  const RequestId again = pair_.start(request_, prepared);
  pair_.run();
  EXPECT_EQ(pair_.decode.tokens(again), tokens_alone(request_));
  EXPECT_EQ(pair_.health(), "");
}

TEST_F(HandoffFailures, WhatNobodyWaitsForIsNotComputed) {
  const auto prepared = pair_.prepare(request_).value();
  const RequestId sent = pair_.send(request_, prepared);
  pair_.step();
  pair_.decode.core->release(prepared.lease);
  const int64_t n_before = pair_.prefill.model.n_passes();
  pair_.step();
  EXPECT_EQ(pair_.prefill.model.n_passes(), n_before);
  EXPECT_EQ(pair_.answer(sent)->error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(pair_.health(), "");
}

TEST_F(HandoffFailures, TheWantedLeaseTimeCounts) {
  PrepareReceive prepare;
  prepare.prompt = request_.prompt;
  prepare.end = 592;
  prepare.lease_ns = 5 * kLeaseNs;
  const auto prepared = pair_.decode.core->prepare(prepare).value();
  EXPECT_EQ(prepared.lease_ns, 5 * kLeaseNs);
  pair_.decode.clock.advance(4 * kLeaseNs);
  pair_.run();
  EXPECT_EQ(pair_.decode.core->stats().n_leases, 1);
  pair_.decode.clock.advance(kLeaseNs);
  pair_.run();
  EXPECT_EQ(pair_.leftovers(), "");
}

TEST_F(HandoffFailures, Row15ALeaseIsTakenOverOnce) {
  const auto prepared = pair_.prepare(request_).value();
  pair_.send(request_, prepared);
  const RequestId first = pair_.start(request_, prepared);
  const RequestId second = pair_.start(request_, prepared);
  pair_.run();
  EXPECT_EQ(pair_.choice(second).finish, FinishReason::kError);
  EXPECT_EQ(pair_.decode.tokens(first), tokens_alone(request_));
  const RequestId third = pair_.start(request_, prepared);
  pair_.run();
  EXPECT_EQ(pair_.choice(third).finish, FinishReason::kGivenUp);
  EXPECT_NE(pair_.choice(third).error.find("is not open"), std::string::npos);
  EXPECT_EQ(pair_.health(), "");
}

TEST_F(HandoffFailures, AReceiverThatIsGoneOrAnotherIsNamed) {
  const auto prepared = pair_.prepare(request_).value();
  auto stale = prepared;
  stale.address.incarnation += 100;
  const RequestId wrong = pair_.send(request_, stale);
  EXPECT_EQ(pair_.answer(wrong)->error().message,
            "PE 1: incarnation 102 is gone, 2 has taken its place");
  auto nobody = prepared;
  nobody.address.pe = Pe{3};
  EXPECT_EQ(pair_.answer(pair_.send(request_, nobody))->error().message, "PE 3: nobody is there");
  auto outside = prepared;
  outside.address.blocks[3] = BlockId{1024};
  EXPECT_EQ(pair_.answer(pair_.send(request_, outside))->error().message,
            "block 1024 of PE 1: it has 1024");
  EXPECT_EQ(pair_.prefill.core->n_ended(), 3);
  EXPECT_EQ(pair_.prefill.core->n_left_queue(), 3);
  // It dies on the way.
  const RequestId sent = pair_.send(request_, prepared);
  pair_.prefill.step();
  pair_.world.kill(HandoffFixture::kDecodePe);
  pair_.prefill.run();
  EXPECT_EQ(pair_.answer(sent)->error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(HandoffFixture::leftovers(pair_.prefill, "prefill"), "");
}

TEST_F(HandoffFailures, NoRoomIsSaidAtOnce) {
  HandoffFixture pair(slow_prefill(), {.engine = handoff_options(Role::kDecode), .n_blocks = 50});
  const auto first = pair.prepare(request_).value();
  const auto second = pair.prepare(make_request(random_tokens(300, 2), 1));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(second.error().retryable);
  EXPECT_TRUE(pair.prepare(make_request(random_tokens(150, 3), 1)));
  EXPECT_EQ(pair.prepare(make_request(random_tokens(800, 2), 1)).error().code,
            ErrorCode::kInvalidArgument);
  pair.decode.core->release(first.lease);
  EXPECT_TRUE(pair.prepare(make_request(random_tokens(300, 2), 1)));
  pair.decode.clock.advance(kLeaseNs);
  pair.run();
  EXPECT_EQ(pair.leftovers(), "");
}

TEST_F(HandoffFailures, AllWindowsInUseIsNoRoom) {
  HandoffFixture pair(slow_prefill(), {.engine = handoff_options(Role::kDecode), .n_windows = 2});
  const auto first = pair.prepare(request_).value();
  const auto second = pair.prepare(request_).value();
  const auto third = pair.prepare(request_);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(third.error().retryable);
  pair.decode.core->release(first.lease);
  pair.decode.core->release(second.lease);
  EXPECT_EQ(pair.leftovers(), "");
  EXPECT_EQ(pair.n_free_windows(), 2);
}

TEST_F(HandoffFailures, TheHeadOfTheQueueGetsItsBlocksBeforeNewLeases) {
  HandoffFixture pair(slow_prefill(), {.engine = handoff_options(Role::kDecode), .n_blocks = 50});
  const auto lease = pair.prepare(request_).value();
  const RequestId waiting = pair.decode.add(make_request(random_tokens(300, 2), 4));
  pair.decode.step();
  EXPECT_TRUE(pair.decode.tokens(waiting).empty());
  EXPECT_FALSE(pair.prepare(make_request(random_tokens(33, 3), 1)));
  pair.decode.core->release(lease.lease);
  pair.run();
  EXPECT_EQ(pair.decode.tokens(waiting).size(), 4U);
  EXPECT_EQ(pair.leftovers(), "");
}

TEST_F(HandoffFailures, RolesRefuseWhatIsNotTheirs) {
  EXPECT_EQ(pair_.prefill.core->check(request_).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(pair_.prefill.core->check(PrepareReceive{}).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(pair_.decode.core->check(RemoteSend{}).error().code, ErrorCode::kUnsupported);
  testing::CoreFixture lone(handoff_options());
  EXPECT_EQ(lone.core->check(PrepareReceive{}).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(lone.core->check(RemoteSend{}).error().code, ErrorCode::kUnsupported);
  auto leased = request_;
  leased.leased = {LeaseId{7}, 0};
  const RequestId id = lone.add(leased);
  lone.run();
  EXPECT_EQ(lone.outcomes[id].choices[0].finish, FinishReason::kGivenUp);
}

TEST_F(HandoffFailures, TheEndOfEverythingAnswersEverybody) {
  const auto ids = pair_.hand_off(request_);
  pair_.step();
  const auto lease = pair_.prepare(make_request(random_tokens(100, 2), 1)).value();
  EXPECT_TRUE(lease.lease.value > 0);
  for (auto* side : {&pair_.prefill, &pair_.decode}) {
    side->core->end_all(FinishReason::kCancelled, "stopped");
    side->core->emit();
  }
  EXPECT_EQ(pair_.answer(ids.send)->error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(pair_.choice(ids.request).finish, FinishReason::kCancelled);
  EXPECT_EQ(pair_.leftovers(), "");
}

}  // namespace
}  // namespace baton::engine
