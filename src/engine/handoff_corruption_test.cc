// Nobody ever gets KV that isn't his, whatever goes wrong in a handoff. "Row N" is a line of the
// list of failures of other servers (docs/failures.md): none of them may happen here.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "testing/handoff_fixture.h"

namespace baton::engine {
namespace {

using testing::handoff_options;
using testing::HandoffFixture;
using testing::HeapFault;
using testing::HeapOperation;
using testing::make_request;
using testing::random_tokens;
using testing::slow_prefill;
using testing::tokens_alone;

constexpr int64_t kLeaseNs = 1'000'000'000;

class HandoffCorruption : public ::testing::Test {
 protected:
  HandoffFixture pair_{slow_prefill(), {handoff_options(Role::kDecode)}};
  const TokenRequest request_ = make_request(random_tokens(600, 1), 20, 1);
};

TEST_F(HandoffCorruption, Row18PromptsOfLessThanABlock) {
  for (int n = 1; n <= 16; ++n) {
    const auto request = make_request(random_tokens(n, uint32_t(n)), 20, 3);
    const auto prepared = pair_.prepare(request).value();
    EXPECT_TRUE(prepared.address.blocks.empty());
    const RequestId id = pair_.start(request, prepared);
    pair_.run();
    EXPECT_EQ(pair_.decode.tokens(id), tokens_alone(request));
  }
  EXPECT_EQ(pair_.health(), "");
}

// Sends side by side in a sender's cache that is too small for them and everything before.
TEST_F(HandoffCorruption, Row19NothingIsEvictedBeforeItIsSent) {
  auto prefill = slow_prefill();
  prefill.n_blocks = 80;
  prefill.engine.max_batched_tokens = 256;
  HandoffFixture pair(std::move(prefill), {handoff_options(Role::kDecode)});
  std::vector<std::pair<RequestId, TokenRequest>> all;
  for (uint32_t i = 0; i < 12; ++i) {
    // Half of them begin like one before, of which some may be cached.
    auto prompt = random_tokens(300, i % 6);
    const auto rest = random_tokens(200, 100 + i);
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    const auto request = make_request(prompt, 5, i);
    all.emplace_back(pair.hand_off(request).request, request);
    pair.step();
  }
  pair.run();
  for (const auto& [id, request] : all) EXPECT_EQ(pair.decode.tokens(id), tokens_alone(request));
  EXPECT_EQ(pair.leftovers(), "");
}

TEST_F(HandoffCorruption, Row24AnAddressIsForItsRangeOnly) {
  pair_.hand_off(make_request({request_.prompt.begin(), request_.prompt.begin() + 200}, 1));
  pair_.run();
  const auto prepared = pair_.prepare(request_).value();
  EXPECT_EQ(prepared.n_matched, 192);
  RemoteSend send = HandoffFixture::make_send(request_, prepared);
  const auto message = [&](const RemoteSend& wrong) {
    const Status status = pair_.prefill.core->check(wrong);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(message(send), "");
  auto wrong = send;
  wrong.begin = 0;
  EXPECT_EQ(message(wrong), "address with 25 blocks: [0, 592) has 37");
  wrong = send;
  wrong.begin = 200;
  EXPECT_EQ(message(wrong), "range [200, 592): must be of whole blocks of 16 tokens");
  wrong = send;
  wrong.end = 608;
  EXPECT_EQ(message(wrong), "end 608: must leave at least one of the prompt's 600 tokens");
  wrong = send;
  wrong.to.layout_hash ^= 1;
  EXPECT_NE(message(wrong).find("they can't exchange KV"), std::string::npos);
  EXPECT_EQ(pair_.prefill.core->check(wrong).error().code, ErrorCode::kUnsupported);
  // Two prompts whose starts the receiver has, and which it has at other places than the sender.
  const RequestId sent = pair_.send(request_, prepared);
  const RequestId id = pair_.start(request_, prepared);
  pair_.run();
  EXPECT_TRUE(pair_.delivered(sent));
  EXPECT_EQ(pair_.decode.tokens(id), tokens_alone(request_));
  EXPECT_EQ(pair_.health(), "");
}

TEST_F(HandoffCorruption, Row26TheFirstTokenOpensANewBlock) {
  // The pool holds the prompt and exactly one block more.
  HandoffFixture pair(slow_prefill(), {.engine = handoff_options(Role::kDecode), .n_blocks = 21});
  const auto request = make_request(random_tokens(320, 1), 16, 1);
  const auto ids = pair.hand_off(request);
  pair.run();
  EXPECT_EQ(pair.decode.tokens(ids.request), tokens_alone(request));
  EXPECT_EQ(pair.leftovers(), "");
}

TEST_F(HandoffCorruption, Row27AFailedPutIsNeverASuccess) {
  // 5 chunks of 2 layers, then the signal.
  for (int64_t failing = 0; failing <= 10; ++failing) {
    SCOPED_TRACE(failing);
    auto prefill = slow_prefill();
    prefill.script = [failing, n = int64_t{0},
                      first = uint64_t{0}](const HeapOperation& operation) mutable {
      // Signs of life are not counted.
      if (operation.kind == HeapOperation::Kind::kPut && operation.n_bytes == 0) return HeapFault{};
      if (first == 0) first = operation.target.window.tag;
      const bool meant = operation.target.window.tag == first && n++ == failing;
      return HeapFault{.kind = meant ? HeapFault::Kind::kFail : HeapFault::Kind::kPass};
    };
    HandoffFixture pair(std::move(prefill), {handoff_options(Role::kDecode)});
    const auto bystander = make_request(random_tokens(100, 9), 40, 9);
    const auto ids = pair.hand_off(request_);
    pair.step();
    const auto other = pair.hand_off(bystander);
    pair.run();
    ASSERT_TRUE(pair.answer(ids.send));
    EXPECT_EQ(pair.answer(ids.send)->error().code, ErrorCode::kUnavailable);
    EXPECT_TRUE(pair.choice(ids.request).tokens.empty());
    EXPECT_EQ(pair.decode.tokens(other.request), tokens_alone(bystander)) << "the others go on";
    pair.decode.clock.advance(kLeaseNs);
    pair.run();
    EXPECT_EQ(pair.choice(ids.request).finish, FinishReason::kGivenUp);
    const auto again = pair.hand_off(request_);
    pair.run();
    EXPECT_EQ(pair.decode.tokens(again.request), tokens_alone(request_));
    EXPECT_EQ(pair.leftovers(), "");
  }
}

TEST_F(HandoffCorruption, Row27ALeaseIsForItsPromptOnly) {
  const auto prepared = pair_.prepare(request_).value();
  pair_.send(request_, prepared);
  pair_.run();
  auto other = request_;
  other.prompt.back() ^= 1;
  const RequestId id = pair_.start(other, prepared);
  pair_.run();
  EXPECT_EQ(pair_.choice(id).finish, FinishReason::kError);
  EXPECT_TRUE(pair_.choice(id).tokens.empty());
  const RequestId right = pair_.start(request_, prepared);
  pair_.run();
  EXPECT_EQ(pair_.decode.tokens(right), tokens_alone(request_));
  EXPECT_EQ(pair_.health(), "");
}

// Row 28: a put that is caught in the middle outlives its request, wants blocks that another one
// could use, and ends by itself or with its process: in any order.
TEST_F(HandoffCorruption, Row28ALateWriterHurtsNobody) {
  enum Event { kCancel, kOther, kEnd };
  std::array<Event, 3> order = {kCancel, kOther, kEnd};
  std::sort(order.begin(), order.end());
  do {
    for (const bool dies : {false, true}) {
      for (const bool expires : {false, true}) {
        SCOPED_TRACE(fmt::format("{}{}{} {} {}", int(order[0]), int(order[1]), int(order[2]), dies,
                                 expires));
        HandoffFixture pair(slow_prefill(),
                            {.engine = handoff_options(Role::kDecode), .n_blocks = 45});
        const auto ids = pair.hand_off(request_);
        pair.step();
        pair.world.hold_next_put(HandoffFixture::kDecodePe);
        pair.step();
        const auto other = make_request(random_tokens(300, 5), 100, 5);
        RequestId id;
        for (const Event event : order) {
          if (event == kCancel && expires) pair.decode.clock.advance(2 * kLeaseNs);
          if (event == kCancel && !expires) pair.decode.core->cancel(ids.request, std::nullopt);
          if (event == kOther) id = pair.decode.add(other);
          if (event == kEnd && dies) pair.kill_prefill();
          if (event == kEnd && !dies) pair.world.finish_puts();
          for (int i = 0; i < 5; ++i) pair.decode.step();
        }
        for (int i = 0; i < 200; ++i) pair.decode.step();
        EXPECT_EQ(pair.decode.tokens(id), [&] {
          // A decode engine computes it in the decode class.
          testing::CoreFixture lone(handoff_options(Role::kDecode));
          const RequestId lone_id = lone.add(other);
          lone.run();
          return lone.tokens(lone_id);
        }());
        EXPECT_EQ(HandoffFixture::leftovers(pair.decode, "decode"), "");
        EXPECT_EQ(pair.n_free_windows(), 64);
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(HandoffCorruption, Row28BlocksOfALateWriterAreNobodysUntilItIsDone) {
  const auto ids = pair_.hand_off(request_);
  pair_.step();
  pair_.world.hold_next_put(HandoffFixture::kDecodePe);
  pair_.step();
  pair_.decode.core->cancel(ids.request, std::nullopt);
  EXPECT_EQ(pair_.decode.core->stats().n_quarantined, 1);
  EXPECT_EQ(pair_.decode.blocks().leased, 37) << "what it may write into; the tail's block is free";
  EXPECT_TRUE(pair_.decode.core->next_poll_ns()) << "the reaper needs no work to come";
  pair_.decode.step();
  EXPECT_EQ(pair_.decode.core->stats().n_quarantined, 1);
  EXPECT_EQ(pair_.world.finish_puts(), 1);
  pair_.decode.step();
  EXPECT_EQ(pair_.decode.blocks().leased, 0);
  pair_.run();
  EXPECT_EQ(pair_.health(), "");
}

TEST_F(HandoffCorruption, Row31NothingIsMatchableBeforeItIsThere) {
  const auto prepared = pair_.prepare(request_).value();
  const RequestId sent = pair_.send(request_, prepared);
  const RequestId id = pair_.start(request_, prepared);
  while (!pair_.answer(sent)) {
    const auto same = pair_.prepare(request_).value();
    EXPECT_EQ(same.n_matched, 0);
    pair_.decode.core->release(same.lease);
    pair_.prefill.step();
  }
  const auto before = pair_.prepare(request_).value();
  EXPECT_EQ(before.n_matched, 0) << "it has come, but the receiver has not seen it";
  pair_.decode.core->release(before.lease);
  pair_.decode.step();
  const auto after = pair_.prepare(request_).value();
  EXPECT_EQ(after.n_matched, 592);
  pair_.decode.core->release(after.lease);
  pair_.run();
  EXPECT_EQ(pair_.decode.tokens(id), tokens_alone(request_));
  // Nor is what never came.
  const auto other = make_request(random_tokens(600, 2), 1);
  const auto lost = pair_.hand_off(other);
  pair_.step();
  pair_.prefill.core->cancel(lost.send, std::nullopt);
  pair_.decode.core->cancel(lost.request, std::nullopt);
  const auto none = pair_.prepare(other).value();
  EXPECT_EQ(none.n_matched, 0);
  pair_.decode.core->release(none.lease);
  EXPECT_EQ(pair_.health(), "");
}

}  // namespace
}  // namespace baton::engine
