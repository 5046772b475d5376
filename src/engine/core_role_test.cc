// Requests that move between engines, and what an engine's role changes.
#include <gtest/gtest.h>

#include "testing/core_fixture.h"

namespace baton::engine {
namespace {

using testing::ChoiceOutcome;
using testing::CoreFixture;
using testing::make_request;
using testing::Outcome;
using testing::random_tokens;
using testing::run_alone;

/// A request that goes on from the first `n_done` tokens of `tokens`, elsewhere.
TokenRequest moved(TokenRequest request, const std::vector<TokenId>& tokens, int choice,
                   int n_done) {
  request.output.assign(tokens.begin(), tokens.begin() + n_done);
  request.first_choice = choice;
  request.n_choices = 1;
  return request;
}

TEST(CoreRole, AMovedChoiceGoesOnAsItWouldHave) {
  auto request = make_request(random_tokens(200, 1), 40, 9);
  request.n_choices = 3;
  request.min_tokens = 25;
  request.stop_ids = {7};
  request.n_logprobs = 2;
  request.sampling.repetition_penalty = 1.3F;
  request.sampling.frequency_penalty = 0.7F;
  request.sampling.presence_penalty = 0.4F;
  for (const float temperature : {0.0F, 0.8F}) {
    request.sampling.temperature = temperature;
    const Outcome whole = run_alone(request);
    for (int choice = 0; choice < 3; ++choice) {
      const ChoiceOutcome& expected = whole.choices.at(choice);
      const int n_tokens = static_cast<int>(expected.tokens.size());
      for (const int n_done : {1, 8, 9, 24, n_tokens - 1}) {
        const Outcome rest = run_alone(moved(request, expected.tokens, choice, n_done));
        ASSERT_EQ(rest.choices.size(), 1U);
        const ChoiceOutcome& got = rest.choices.at(choice);
        EXPECT_EQ(got.tokens,
                  std::vector<TokenId>(expected.tokens.begin() + n_done, expected.tokens.end()))
            << choice << " after " << n_done;
        EXPECT_EQ(got.finish, expected.finish);
        EXPECT_EQ(got.logprobs.back().logprob, expected.logprobs.back().logprob);
      }
    }
  }
}

TEST(CoreRole, ADecodeEngineComputesEverythingInTheDecodeClass) {
  EngineOptions options;
  options.role = Role::kDecode;
  CoreFixture fixture(options);
  fixture.model.on_forward = [&](std::span<const model::SeqSlice> batch) {
    for (const auto& slice : batch) {
      EXPECT_EQ(slice.kernel_class, linalg::KernelClass::kDecode);
    }
  };
  const RequestId id = fixture.add(make_request(random_tokens(1000, 1), 5));
  fixture.run();
  EXPECT_EQ(fixture.tokens(id).size(), 5U);
}

}  // namespace
}  // namespace baton::engine
