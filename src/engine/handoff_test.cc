// A prompt prefilled on one engine and decoded on another equals the same on one engine.
#include "engine/handoff.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "testing/handoff_fixture.h"

namespace baton::engine {
namespace {

using testing::ChoiceOutcome;
using testing::CoreFixture;
using testing::handoff_options;
using testing::HandoffFixture;
using testing::make_request;
using testing::MemberOptions;
using testing::Outcome;
using testing::random_tokens;
using testing::whole_blocks;

Outcome alone(const TokenRequest& request) {
  return testing::run_alone(request, handoff_options());
}

int count(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

void expect_same(const Outcome& got, const Outcome& expected) {
  EXPECT_EQ(got.n_prompts, 1);
  EXPECT_FALSE(got.event_before_prompt);
  ASSERT_EQ(got.choices.size(), expected.choices.size());
  for (const auto& [choice, outcome] : expected.choices) {
    const ChoiceOutcome& mine = got.choices.at(choice);
    EXPECT_EQ(mine.tokens, outcome.tokens) << choice;
    EXPECT_EQ(mine.finish, outcome.finish) << choice << " " << mine.error;
    EXPECT_FALSE(mine.after_finish) << choice;
    ASSERT_EQ(mine.logprobs.size(), outcome.logprobs.size());
    for (size_t i = 0; i < mine.logprobs.size(); ++i) {
      EXPECT_EQ(mine.logprobs[i].logprob, outcome.logprobs[i].logprob);
    }
  }
}

// Lengths around the borders of blocks; row 26: the first token may begin a new block.
TEST(Handoff, EqualsOneEngineAtEveryLength) {
  std::vector<int> lengths;
  for (int n = 1; n <= 40; ++n) lengths.push_back(n);
  for (int k = 4; k <= 40; k += 9) {
    for (const int n : {16 * k - 1, 16 * k, 16 * k + 1}) lengths.push_back(n);
  }
  lengths.push_back(2000);
  for (const int n : lengths) {
    SCOPED_TRACE(n);
    HandoffFixture pair;
    const auto request = make_request(random_tokens(n, uint32_t(n)), 40, uint64_t(n));
    const auto ids = pair.hand_off(request);
    pair.run();
    ASSERT_TRUE(pair.delivered(ids.send));
    EXPECT_EQ((*pair.answer(ids.send))->n_bytes,
              int64_t{whole_blocks(request.prompt) / 16} * int64_t{testing::kStandInBlockBytes});
    expect_same(pair.decode.outcomes[ids.request], alone(request));
    EXPECT_EQ(pair.leftovers(), "");
  }
}

TEST(Handoff, SomeOfThePromptMayBeLeftToTheReceiver) {
  const auto request = make_request(random_tokens(300, 1), 20, 3);
  for (const int end : {0, 16, 160, 288}) {
    SCOPED_TRACE(end);
    HandoffFixture pair;
    std::vector<std::pair<int, linalg::KernelClass>> slices;
    pair.decode.model.on_forward = [&](std::span<const model::SeqSlice> batch) {
      for (const auto& slice : batch) slices.emplace_back(slice.begin, slice.kernel_class);
    };
    const auto ids = pair.hand_off(request, end);
    pair.run();
    EXPECT_EQ(slices.front(), std::pair(end, linalg::KernelClass::kDecode));
    EXPECT_EQ(pair.decode.tokens(ids.request).size(), 20U);
    if (end == 288) expect_same(pair.decode.outcomes[ids.request], alone(request));
    EXPECT_EQ(pair.leftovers(), "");
  }
}

TEST(Handoff, ChunksAreSentAsTheyAreComputed) {
  auto options = handoff_options(Role::kPrefill);
  options.max_batched_tokens = 160;
  HandoffFixture pair({options}, {handoff_options(Role::kDecode)});
  const auto request = make_request(random_tokens(1000, 1), 20, 3);
  const auto ids = pair.hand_off(request);
  for (int i = 0; i < 3; ++i) pair.step();
  EXPECT_FALSE(pair.answer(ids.send));
  EXPECT_GT(pair.prefill.blocks().used, 0);
  EXPECT_EQ(pair.decode.blocks().leased, 63);
  EXPECT_EQ(pair.decode.blocks().used, 0);
  EXPECT_EQ(pair.decode.model.n_passes(), 0) << "nothing to compute before the KV is there";
  pair.run();
  EXPECT_EQ(pair.prefill.model.max_pass_tokens(), 128);
  expect_same(pair.decode.outcomes[ids.request], alone(request));
  EXPECT_EQ(pair.leftovers(), "");
}

TEST(Handoff, EachLayerIsPutBeforeTheNextIsComputed) {
  using Kind = testing::HeapOperation::Kind;
  std::vector<std::string> notes;
  MemberOptions prefill{handoff_options(Role::kPrefill)};
  prefill.script = [&](const testing::HeapOperation& operation) {
    if (operation.kind == Kind::kSignal) notes.emplace_back("signal");
    if (operation.n_bytes > 0) notes.emplace_back("put");
    return testing::HeapFault{};
  };
  HandoffFixture pair(std::move(prefill), {handoff_options(Role::kDecode)});
  pair.prefill.model.on_layer = [&](int layer) { notes.push_back(std::to_string(layer)); };
  pair.hand_off(make_request(random_tokens(600, 1), 2));
  pair.run();
  EXPECT_EQ(notes,
            (std::vector<std::string>{"0", "put", "1", "put", "0", "put", "1", "put", "signal"}));
}

TEST(Handoff, PrefixHitsOnEitherSide) {
  // How much of the prompt each side has seen before.
  for (const int at_prefill : {0, 160, 400}) {
    for (const int at_decode : {0, 160, 400}) {
      SCOPED_TRACE(fmt::format("{} {}", at_prefill, at_decode));
      HandoffFixture pair;
      const auto request = make_request(random_tokens(500, 1), 30, 3);
      const auto warm = [&](int n, uint32_t seed) {
        std::vector<TokenId> prompt(request.prompt.begin(), request.prompt.begin() + n);
        const auto rest = random_tokens(20, seed);
        prompt.insert(prompt.end(), rest.begin(), rest.end());
        return make_request(prompt, 1);
      };
      if (at_decode > 0) {
        pair.hand_off(warm(at_decode, 7));
        pair.run();
        pair.prefill.core->clear_cached();
      }
      if (at_prefill > 0) {
        // Through another receiver would be the way; a lease that is given back does as well.
        const auto other = warm(at_prefill, 8);
        const auto prepared = pair.prepare(other).value();
        pair.send(other, prepared);
        pair.run();
        pair.decode.core->release(prepared.lease);
        pair.run();
      }
      const int64_t n_before = pair.prefill.model.n_tokens();
      const auto prepared = pair.prepare(request).value();
      EXPECT_EQ(prepared.n_matched, at_decode);
      EXPECT_EQ(prepared.address.blocks.size(), size_t((496 - at_decode) / 16));
      const RequestId sent = pair.send(request, prepared);
      const RequestId id = pair.start(request, prepared);
      pair.run();
      ASSERT_TRUE(pair.delivered(sent));
      EXPECT_EQ((*pair.answer(sent))->n_cached_tokens, at_prefill);
      EXPECT_EQ((*pair.answer(sent))->n_bytes,
                static_cast<int64_t>(prepared.address.blocks.size() * testing::kStandInBlockBytes))
          << "each block once";
      EXPECT_EQ(pair.prefill.model.n_tokens() - n_before, 496 - at_prefill);
      EXPECT_EQ(pair.decode.outcomes[id].prompt->n_cached_tokens, at_decode);
      expect_same(pair.decode.outcomes[id], alone(request));
      EXPECT_EQ(pair.leftovers(), "");
    }
  }
}

// Row 30: everything is cached on the receiver; nothing is sent.
TEST(Handoff, Row30FullHitOnTheReceiver) {
  for (const int n : {31, 32, 33, 100, 496}) {
    HandoffFixture pair;
    const auto request = make_request(random_tokens(n, 1), 10, 4);
    pair.hand_off(request);
    pair.run();
    const auto prepared = pair.prepare(request).value();
    EXPECT_EQ(prepared.n_matched, whole_blocks(request.prompt));
    EXPECT_TRUE(prepared.address.blocks.empty());
    const int64_t n_before = pair.prefill.model.n_tokens();
    const RequestId sent = pair.send(request, prepared);
    const RequestId id = pair.start(request, prepared);
    pair.run();
    EXPECT_TRUE(pair.delivered(sent)) << "nothing to do is done at once";
    EXPECT_EQ(pair.prefill.model.n_tokens(), n_before);
    expect_same(pair.decode.outcomes[id], alone(request));
    EXPECT_EQ(pair.leftovers(), "");
  }
}

// The sender has all of it cached, so there is no chunk to compute.
TEST(Handoff, FullHitOnTheSender) {
  HandoffFixture pair;
  const auto request = make_request(random_tokens(496, 1), 10, 4);
  pair.hand_off(request);
  pair.run();
  pair.decode.core->clear_cached();
  const int64_t n_before = pair.prefill.model.n_tokens();
  const auto ids = pair.hand_off(request);
  pair.run();
  EXPECT_EQ(pair.prefill.model.n_tokens(), n_before);
  EXPECT_EQ((*pair.answer(ids.send))->n_bytes, 30 * int64_t{testing::kStandInBlockBytes});
  expect_same(pair.decode.outcomes[ids.request], alone(request));
  EXPECT_EQ(pair.leftovers(), "");
}

TEST(Handoff, SeveralInFlightAndChoices) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    auto prefill = handoff_options(Role::kPrefill);
    prefill.max_batched_tokens = 200;
    auto decode = handoff_options(Role::kDecode);
    decode.max_batch = 6;
    HandoffFixture pair({prefill}, {decode});
    std::vector<std::pair<RequestId, TokenRequest>> all;
    for (uint32_t i = 0; i < 6; ++i) {
      auto request = make_request(random_tokens(20 + int(i) * 70, seed * 100 + i), 30, i);
      request.n_choices = i % 3 == 2 ? 4 : 1;
      request.n_logprobs = 1;
      request.priority = int(i % 2);
      all.emplace_back(pair.hand_off(request).request, request);
      if (i % 2 == 1) pair.step();
    }
    pair.run();
    for (const auto& [id, request] : all) {
      SCOPED_TRACE(id.value);
      expect_same(pair.decode.outcomes[id], alone(request));
    }
    EXPECT_EQ(pair.leftovers(), "");
  }
}

TEST(Handoff, ChoicesShareWhatWasSentEvenIfTheBatchIsFull) {
  auto decode = handoff_options(Role::kDecode);
  decode.max_batch = 3;
  HandoffFixture pair({handoff_options(Role::kPrefill)}, {decode});
  auto request = make_request(random_tokens(300, 1), 12, 9);
  request.n_choices = 8;
  const auto ids = pair.hand_off(request);
  pair.run();
  EXPECT_EQ(pair.decode.model.n_tokens(), 12 + 8 * 11)
      << "the tail once, then a row for each token";
  expect_same(pair.decode.outcomes[ids.request], alone(request));
  EXPECT_EQ(pair.leftovers(), "");
}

TEST(Handoff, PromptLogprobsFromBothSides) {
  for (const int n : {5, 16, 17, 300}) {
    SCOPED_TRACE(n);
    auto request = make_request(random_tokens(n, 1), 3, 5);
    request.n_prompt_logprobs = 2;
    HandoffFixture pair;
    pair.hand_off(make_request(request.prompt, 1));  // what is cached must not be skipped
    pair.run();
    const auto ids = pair.hand_off(request);
    pair.run();
    const Outcome expected = alone(request);
    const Outcome& got = pair.decode.outcomes[ids.request];
    ASSERT_TRUE(pair.delivered(ids.send));
    const auto& sent = (*pair.answer(ids.send))->prompt_logprobs;
    const auto end = static_cast<size_t>(whole_blocks(request.prompt));
    ASSERT_EQ(sent.size(), end + 1);
    ASSERT_EQ(got.prompt->prompt_logprobs.size(), size_t(n));
    for (size_t i = 1; i < size_t(n); ++i) {
      const LogprobEntry& entry = i <= end ? sent[i] : got.prompt->prompt_logprobs[i];
      EXPECT_EQ(entry.logprob, expected.prompt->prompt_logprobs[i].logprob) << i;
      ASSERT_EQ(entry.top.size(), 2U);
      EXPECT_EQ(entry.top[0].id, expected.prompt->prompt_logprobs[i].top[0].id);
    }
    expect_same(got, expected);
    EXPECT_EQ(pair.leftovers(), "");
  }
}

TEST(Handoff, NobodySendsAndTheReceiverComputesTheRest) {
  HandoffFixture pair;
  const auto request = make_request(random_tokens(300, 1), 20, 3);
  pair.hand_off(make_request({request.prompt.begin(), request.prompt.begin() + 100}, 1));
  pair.run();
  const auto prepared = pair.prepare(request).value();
  EXPECT_EQ(prepared.n_matched, 96);
  const RequestId id = pair.start(request, prepared, 96);
  pair.run();
  EXPECT_EQ(pair.decode.tokens(id).size(), 20U);
  EXPECT_EQ(pair.decode.outcomes[id].prompt->n_cached_tokens, 96);
  EXPECT_EQ(pair.leftovers(), "");
  EXPECT_EQ(pair.n_free_windows(), 64);
}

TEST(Handoff, AMovedChoiceGoesOnBehindASentPrompt) {
  auto request = make_request(random_tokens(200, 1), 40, 9);
  request.n_choices = 2;
  request.sampling.repetition_penalty = 1.3F;
  const Outcome whole = alone(request);
  for (int choice = 0; choice < 2; ++choice) {
    for (const int n_done : {1, 7, 8, 30}) {
      SCOPED_TRACE(n_done);
      const std::vector<TokenId>& tokens = whole.choices.at(choice).tokens;
      auto rest = request;
      rest.output.assign(tokens.begin(), tokens.begin() + n_done);
      rest.first_choice = choice;
      rest.n_choices = 1;
      HandoffFixture pair;
      const auto ids = pair.hand_off(rest);
      pair.run();
      EXPECT_EQ(pair.decode.tokens(ids.request, choice),
                std::vector<TokenId>(tokens.begin() + n_done, tokens.end()));
      EXPECT_EQ(pair.leftovers(), "");
    }
  }
}

TEST(Handoff, ABothEngineReceivesAndSendsToo) {
  HandoffFixture pair({handoff_options(Role::kBoth)}, {handoff_options(Role::kBoth)});
  const auto request = make_request(random_tokens(500, 1), 30, 3);
  const RequestId local = pair.prefill.add(make_request(random_tokens(300, 2), 60, 1));
  const auto ids = pair.hand_off(request);
  pair.run();
  expect_same(pair.decode.outcomes[ids.request], alone(request));
  expect_same(pair.prefill.outcomes[local], alone(make_request(random_tokens(300, 2), 60, 1)));
  // Without a sender it computes the rest in the prefill class, as if it were alone.
  const auto other = make_request(random_tokens(400, 3), 10, 3);
  const auto prepared = pair.prepare(other).value();
  const RequestId id = pair.start(other, prepared, prepared.n_matched);
  pair.run();
  expect_same(pair.decode.outcomes[id], alone(other));
  EXPECT_EQ(pair.leftovers(), "");
}

TEST(Handoff, ASendOfABothEngineSurvivesPreemption) {
  auto options = handoff_options(Role::kBoth);
  options.max_batched_tokens = 32;
  options.max_batch = 16;
  HandoffFixture pair({.engine = options, .n_blocks = 40}, {handoff_options(Role::kDecode)});
  const auto talk = make_request(random_tokens(16, 2), 500, 1);
  const RequestId talker = pair.prefill.add(talk);
  while (pair.prefill.tokens(talker).size() < 60) pair.step();
  const auto request = make_request(random_tokens(560, 1), 10, 3);
  const auto ids = pair.hand_off(request);
  pair.run();
  EXPECT_GT(pair.prefill.core->stats().n_preemptions, 0);
  expect_same(pair.prefill.outcomes[talker], alone(talk));
  expect_same(pair.decode.outcomes[ids.request], alone(request));
  EXPECT_EQ(pair.leftovers(), "");
}

TEST(Handoff, EnginesWithMoreOrLessMemoryExchangeBlocks) {
  HandoffFixture pair({.engine = handoff_options(Role::kPrefill), .n_blocks = 333},
                      {.engine = handoff_options(Role::kDecode), .n_blocks = 77});
  const auto request = make_request(random_tokens(500, 1), 30, 3);
  const auto ids = pair.hand_off(request);
  pair.run();
  expect_same(pair.decode.outcomes[ids.request], alone(request));
  EXPECT_EQ(pair.leftovers(), "");
}

TEST(Handoff, TraceAndMetrics) {
  const std::string path = ::testing::TempDir() + "baton_handoff_trace.json";
  {
    const auto trace = Trace::open(path, "engine").value();
    HandoffFixture pair({.engine = handoff_options(Role::kPrefill), .trace = trace.get()},
                        {handoff_options(Role::kDecode)});
    auto request = make_request(random_tokens(600, 1), 3);
    request.label = "cmpl-1";
    pair.hand_off(request);
    EXPECT_NE(pair.decode.metrics.text().find("baton_leases"), std::string::npos);
    pair.decode.core->publish_metrics();
    EXPECT_NE(
        pair.decode.metrics.text().find("baton_leases{model_name=\"stand-in\",state=\"active\"} 1"),
        std::string::npos);
    EXPECT_NE(pair.decode.metrics.text().find(
                  "baton_kv_blocks{model_name=\"stand-in\",state=\"leased\"} 38"),
              std::string::npos);
    pair.run();
    EXPECT_NE(pair.prefill.metrics.text().find(
                  "baton_kv_transfer_bytes_total{model_name=\"stand-in\"} 37888"),
              std::string::npos);
    EXPECT_NE(pair.prefill.metrics.text().find(
                  "baton_kv_transfer_seconds_count{model_name=\"stand-in\"} 1"),
              std::string::npos);
  }
  std::ifstream file(path);
  const std::string text = std::string((std::istreambuf_iterator<char>(file)), {});
  std::filesystem::remove(path);
  EXPECT_EQ(count(text, "\"name\":\"put\""), 4) << "two chunks, two layers";
  EXPECT_EQ(count(text, "\"name\":\"layer\""), 4);
  EXPECT_EQ(count(text, "\"name\":\"queue\""), 1);
  EXPECT_EQ(count(text, "\"name\":\"prefill\""), 2);
  EXPECT_EQ(count(text, R"("args":{"tokens":512,"layer":1,"bytes":16384,"requests":["cmpl-1"]})"),
            1);
}

TEST(Handoff, AnEnginesQueueIsWhatAPromptWaitsForThere) {
  HandoffFixture pair;
  auto request = make_request(random_tokens(600, 1), 3);
  request.arrival_ns = 1;  // at the router, a second ago
  const auto ids = pair.hand_off(request);
  pair.run();
  EXPECT_EQ((*pair.answer(ids.send))->queue_ns, 0);
  const std::string metrics = pair.decode.metrics.text();
  EXPECT_NE(metrics.find("vllm:request_queue_time_seconds_count{model_name=\"stand-in\"} 1\n"),
            std::string::npos);
  EXPECT_NE(metrics.find("vllm:request_queue_time_seconds_sum{model_name=\"stand-in\"} 0\n"),
            std::string::npos);
}

TEST(Handoff, TheDescriptorNamesWhatBothSidesShare) {
  const kv::KvLayout layout = testing::StandInModel().kv_layout(7, TensorType::kBF16);
  const shmem::MemberInfo info = kv_member(layout, "a model", "engine 3");
  EXPECT_EQ(info.name, "engine 3");
  std::vector<std::string> names;
  for (const auto& field : info.descriptor) names.push_back(field.name);
  EXPECT_EQ(names, (std::vector<std::string>{"block size", "dtype", "layers", "kv heads",
                                             "head_dim", "model"}));
  shmem::Peer peer;
  peer.member = info;
  const kv::KvLayout own = testing::StandInModel().kv_layout(100, TensorType::kBF16);
  EXPECT_EQ(peer_layout(peer, own)->n_blocks, 7);
  for (const char* wrong : {"", "kv_blocks", "kv_blocks x", "kv_blocks 7x", "kv_blocks -7"}) {
    peer.member.info = wrong;
    EXPECT_FALSE(peer_layout(peer, own)) << wrong;
  }
}

}  // namespace
}  // namespace baton::engine
