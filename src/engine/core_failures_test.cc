// What a request that fails leaves alone: all the others.
#include <gtest/gtest.h>

#include <new>

#include "testing/core_fixture.h"

namespace baton::engine {
namespace {

using testing::CoreFixture;
using testing::make_request;
using testing::Outcome;
using testing::random_tokens;
using testing::run_alone;

TEST(CoreFailures, NanEndsOnlyItsOwnChoiceAndIsNotCached) {
  CoreFixture fixture;
  fixture.model.poison_token = 63;
  auto sick = make_request(random_tokens(200, 1, 60), 10);
  sick.prompt.back() = 63;
  sick.n_choices = 2;
  auto healthy = make_request(random_tokens(200, 2, 60), 10);
  healthy.sampling.logit_bias = {{63, -100.0F}};
  const RequestId bad = fixture.add(sick);
  const RequestId good = fixture.add(healthy);
  fixture.run();
  for (int choice = 0; choice < 2; ++choice) {
    EXPECT_EQ(fixture.outcomes[bad].choices[choice].finish, FinishReason::kError);
    EXPECT_FALSE(fixture.outcomes[bad].choices[choice].error.empty());
  }
  EXPECT_EQ(fixture.tokens(good).size(), 10U);
  const RequestId again = fixture.add(sick);
  fixture.run();
  EXPECT_EQ(fixture.outcomes[again].prompt->n_cached_tokens, 0);
}

TEST(CoreFailures, AnExceptionOfTheModelEndsOnlyWhoCausesIt) {
  CoreFixture fixture;
  fixture.model.on_forward = [](std::span<const model::SeqSlice> slices) {
    for (const auto& slice : slices) {
      if (slice.tokens.size() == 77) throw std::bad_alloc();
    }
  };
  auto request = make_request(random_tokens(77, 1), 4);
  request.n_choices = 2;
  const RequestId bad = fixture.add(request);
  const RequestId good = fixture.add(make_request(random_tokens(50, 2), 4));
  fixture.run();
  EXPECT_EQ(fixture.outcomes[bad].n_finished(), 2);
  EXPECT_EQ(fixture.outcomes[bad].choices[1].finish, FinishReason::kError);
  EXPECT_EQ(fixture.tokens(good),
            run_alone(make_request(random_tokens(50, 2), 4)).choices[0].tokens);
  EXPECT_FALSE(fixture.core->stats().last_error.empty());
  EXPECT_EQ(fixture.blocks().used, 0);
}

TEST(CoreFailures, AThrowingSinkEndsItsRequest) {
  CoreFixture fixture;
  auto request = make_request(random_tokens(20, 1), 10);
  request.id = RequestId{99};
  fixture.core->add(request, [](RequestUpdate) { throw std::runtime_error("full"); });
  const RequestId good = fixture.add(make_request(random_tokens(20, 1), 10));
  fixture.run();
  EXPECT_EQ(fixture.tokens(good).size(), 10U);
  EXPECT_EQ(fixture.core->n_ended(), 2);
}

/// A sink that can't be copied a second time, as if memory had run out.
struct OnceCopied {
  Outcome& outcome;
  bool copied = false;
  explicit OnceCopied(Outcome& to) : outcome(to) {}
  OnceCopied(const OnceCopied& other) : outcome(other.outcome), copied(true) {
    if (other.copied) throw std::bad_alloc();
  }
  void operator()(RequestUpdate update) { outcome.take(std::move(update)); }
};

TEST(CoreFailures, ARequestThatCantBeQueuedIsAnswered) {
  CoreFixture fixture;
  const RequestId before = fixture.add(make_request(random_tokens(20, 1), 10));
  auto request = make_request(random_tokens(20, 1), 10);
  request.id = RequestId{99};
  request.n_choices = 2;
  Outcome outcome;
  const OnceCopied sink(outcome);
  fixture.core->add(request, sink);
  EXPECT_EQ(outcome.n_finished(), 2);
  EXPECT_EQ(outcome.choices[1].finish, FinishReason::kError);
  EXPECT_EQ(outcome.choices[1].error, "internal error: the request could not be queued");
  const RequestId after = fixture.add(make_request(random_tokens(20, 1), 10));
  fixture.run();
  EXPECT_EQ(fixture.tokens(before).size(), 10U);
  EXPECT_EQ(fixture.tokens(after).size(), 10U);
  EXPECT_EQ(fixture.core->n_ended(), 3);
  EXPECT_EQ(fixture.core->n_left_queue(), 3);
}

}  // namespace
}  // namespace baton::engine
