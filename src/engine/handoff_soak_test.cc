// Random prompts, verbs in random order, cancels, expiry, failing and late puts, small pools, for
// many seeds: what completes is right, and nothing is left behind on either side.
#include <gtest/gtest.h>

#include <algorithm>

#include "testing/handoff_fixture.h"

namespace baton::engine {
namespace {

using testing::handoff_options;
using testing::HandoffFixture;
using testing::HeapFault;
using testing::HeapOperation;
using testing::make_request;
using testing::MemberOptions;
using testing::random_tokens;

constexpr int64_t kLeaseNs = 1'000'000'000;

/// One request on its way, as a router would know it.
struct Flow {
  TokenRequest request;
  PreparedReceive prepared;
  std::optional<RequestId> send;
  std::optional<RequestId> id;
  std::vector<bool> cancelled;  ///< [n_choices]
};

class RandomRouter {
 public:
  explicit RandomRouter(uint32_t seed)
      : random_(seed), failing_(seed + 1000), pair_(prefill_options(seed), decode_options(seed)) {}

  void run() {
    for (int i = 0; i < 300; ++i) {
      act();
      if (below(3) > 0) pair_.prefill.step();
      if (below(3) > 0) pair_.decode.step();
      check_counts();
    }
    faults_ = false;
    // What nobody takes over runs out; what is held, or will be, ends.
    for (int i = 0; i < 3; ++i) {
      pair_.run();
      pair_.decode.clock.advance(kLeaseNs);
    }
    pair_.hand_off(make_request(random_tokens(50, 77), 1));
    pair_.run();
    pair_.world.finish_puts();
    for (int i = 0; i < 3; ++i) {
      pair_.run();
      pair_.decode.clock.advance(kLeaseNs);
    }
    pair_.run();
    EXPECT_EQ(pair_.leftovers(), "");
    check_flows();
    EXPECT_EQ(pair_.health(), "");
  }
  [[nodiscard]] int n_complete() const { return n_complete_; }
  [[nodiscard]] int n_given_up() const { return n_given_up_; }

 private:
  MemberOptions prefill_options(uint32_t seed) {
    MemberOptions out{handoff_options(Role::kPrefill)};
    out.engine.max_batched_tokens = 80 + static_cast<int>(seed % 7) * 40;
    out.n_blocks = 60 + static_cast<int>(seed % 50);
    out.model.class_matters = false;
    out.script = [this](const HeapOperation&) {
      const bool fails = faults_ && failing_() % 60 == 0;
      return HeapFault{.kind = fails ? HeapFault::Kind::kFail : HeapFault::Kind::kPass};
    };
    return out;
  }
  static MemberOptions decode_options(uint32_t seed) {
    // Some of them are "both": these recompute what they preempt, if it is their own.
    MemberOptions out{handoff_options(seed % 3 == 0 ? Role::kBoth : Role::kDecode)};
    out.engine.max_batch = 3 + static_cast<int>(seed % 9);
    out.n_blocks = 50 + static_cast<int>(seed * 7 % 60);
    out.n_windows = 4 + static_cast<int>(seed % 4);
    out.model.class_matters = false;
    return out;
  }

  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

  void act() {
    const int kind = below(20);
    if (kind < 5) return prepare();
    if (kind == 5) return add_local();
    if (kind == 6) return pair_.decode.clock.advance(below(4) == 0 ? kLeaseNs : kLeaseNs / 20);
    if (kind == 7) return pair_.world.hold_next_put(HandoffFixture::kDecodePe);
    if (kind == 8) return static_cast<void>(pair_.world.finish_puts());
    if (flows_.empty()) return;
    Flow& flow = flows_[static_cast<size_t>(below(static_cast<int>(flows_.size())))];
    if (kind < 16) return advance(flow);
    cancel(flow);
  }

  TokenRequest random_request() {
    std::vector<TokenId> prompt;
    if (below(2) == 0) prompt = random_tokens(16 * below(12), uint32_t(below(3)));
    const auto own = random_tokens(1 + below(250), random_());
    prompt.insert(prompt.end(), own.begin(), own.end());
    auto request = make_request(std::move(prompt), 1 + below(40), random_());
    request.n_choices = below(4) == 0 ? 1 + below(4) : 1;
    request.priority = below(3) - 1;
    return request;
  }

  void prepare() {
    Flow flow;
    flow.request = random_request();
    auto prepared = pair_.prepare(flow.request);
    if (!prepared) {
      EXPECT_EQ(prepared.error().code, ErrorCode::kExhausted) << prepared.error().message;
      return;
    }
    flow.prepared = std::move(*prepared);
    flow.cancelled.resize(static_cast<size_t>(flow.request.n_choices));
    flows_.push_back(std::move(flow));
  }

  void add_local() {
    Flow flow;
    flow.request = random_request();
    flow.cancelled.resize(static_cast<size_t>(flow.request.n_choices));
    flow.id = pair_.decode.add(flow.request);
    flow.send = RequestId{0};
    flows_.push_back(std::move(flow));
  }

  /// Its next verb; the order of the two doesn't matter.
  void advance(Flow& flow) {
    if (!flow.send && (flow.id || below(2) == 0)) {
      flow.send = pair_.send(flow.request, flow.prepared);
    } else if (!flow.id) {
      std::optional<int> begin;
      if (!flow.send && below(6) == 0) {  // nobody will send
        begin = flow.prepared.n_matched;
        flow.send = RequestId{0};
      }
      flow.id = pair_.start(flow.request, flow.prepared, begin);
    }
  }

  void cancel(Flow& flow) {
    const int what = below(4);
    if (what == 0 && flow.send) return pair_.prefill.core->cancel(*flow.send, std::nullopt);
    if (what == 1) return pair_.decode.core->release(flow.prepared.lease);
    if (!flow.id) return;
    std::optional<int> choice;
    if (what == 3) choice = below(flow.request.n_choices);
    for (int c = 0; c < flow.request.n_choices; ++c) {
      if (choice && *choice != c) continue;
      if (!pair_.choice(*flow.id, c).finish) flow.cancelled[static_cast<size_t>(c)] = true;
    }
    pair_.decode.core->cancel(*flow.id, choice);
  }

  void check_counts() {
    for (const auto* side : {&pair_.prefill, &pair_.decode}) {
      const auto blocks = side->blocks();
      ASSERT_EQ(blocks.free + blocks.used + blocks.cached + blocks.leased,
                side->core->limits().n_blocks);
    }
  }

  void check_flows() {
    for (const Flow& flow : flows_) {
      if (flow.send && flow.send->value != 0) {
        EXPECT_TRUE(pair_.answer(*flow.send)) << "every send is answered";
      }
      if (!flow.id) continue;
      const auto alone =
          testing::run_alone(flow.request, handoff_options(), {.class_matters = false});
      for (int c = 0; c < flow.request.n_choices; ++c) {
        const auto& got = pair_.choice(*flow.id, c);
        const auto& expected = alone.choices.at(c);
        EXPECT_FALSE(got.after_finish);
        ASSERT_LE(got.tokens.size(), expected.tokens.size());
        EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), expected.tokens.begin()));
        if (flow.cancelled[static_cast<size_t>(c)]) continue;
        ASSERT_TRUE(got.finish.has_value()) << "neither ended nor cancelled";
        if (got.finish == FinishReason::kGivenUp) {
          ++n_given_up_;
        } else {
          ++n_complete_;
          EXPECT_EQ(got.finish, expected.finish) << got.error;
          EXPECT_EQ(got.tokens, expected.tokens);
        }
      }
    }
  }

  std::mt19937 random_;
  std::mt19937 failing_;
  bool faults_ = true;
  HandoffFixture pair_;
  std::vector<Flow> flows_;
  int n_complete_ = 0;
  int n_given_up_ = 0;
};

TEST(HandoffSoak, NothingIsLeftBehindAndNothingIsWrong) {
  int n_complete = 0;
  int n_given_up = 0;
  for (uint32_t seed = 0; seed < 250; ++seed) {
    SCOPED_TRACE(seed);
    RandomRouter router(seed);
    router.run();
    n_complete += router.n_complete();
    n_given_up += router.n_given_up();
    if (HasFailure()) return;
  }
  EXPECT_GT(n_complete, 2000);
  EXPECT_GT(n_given_up, 500);
}

}  // namespace
}  // namespace baton::engine
