// A handoff with the real forward pass: each engine with the weights of its own phase only, against
// one engine with both. Bit by bit ("Same bits" in docs/architecture.md).
#include <gtest/gtest.h>

#include <filesystem>

#include "model/golden.h"
#include "model/identity.h"
#include "model/loaded_model.h"
#include "model/transformer.h"
#include "testing/handoff_fixture.h"

namespace baton::engine {
namespace {

using testing::handoff_options;
using testing::make_request;
using testing::Outcome;
using testing::whole_blocks;

/// A core over a transformer, in a world or alone.
struct Node {
  Node(const std::string& path, linalg::KernelSet kernels, Role role, testing::FakeWorld* world)
      : context{kernels, pool, workspace} {
    auto file = format::GgufFile::open(path).value();
    auto checkpoint =
        model::read_checkpoint(std::make_shared<const format::GgufFile>(std::move(file))).value();
    EngineOptions options = handoff_options(role);
    options.model_identity = model::kv_identity(checkpoint, kernels);
    options.kv_bytes = 8 << 20;
    model = model::Transformer::create(context, std::move(checkpoint),
                                       {.with_prefill_weights = role != Role::kDecode,
                                        .with_decode_weights = role != Role::kPrefill})
                .value();
    if (world != nullptr) {
      const kv::KvLayout layout = plan_kv(options, *model).value();
      heap = world->join({.first_pe = Pe{role == Role::kPrefill ? 0 : 1},
                          .bytes_per_pe = layout.total_bytes(),
                          .member = kv_member(layout, options.model_identity, "engine")});
    }
    core = EngineCore::create(
               options,
               {.model = model.get(), .clock = &clock, .metrics = &metrics, .heap = heap.get()})
               .value();
  }
  void run() {
    do {
      core->emit();
    } while (core->step());
  }
  Outcome answer(TokenRequest request) {
    Outcome outcome;
    request.id = RequestId{1};
    core->add(std::move(request), [&](RequestUpdate update) { outcome.take(std::move(update)); });
    run();
    return outcome;
  }

  ThreadPool pool{{.n_threads = 1, .cpus = {}}};
  linalg::Workspace workspace;
  linalg::Context context;
  testing::ManualClock clock;
  MetricsRegistry metrics;
  std::unique_ptr<shmem::Heap> heap;
  std::unique_ptr<model::Transformer> model;
  std::unique_ptr<EngineCore> core;
};

class HandoffModel : public ::testing::TestWithParam<linalg::KernelSet> {};

TEST_P(HandoffModel, OnePrefillOneDecodeHaveTheBitsOfOneEngine) {
  for (const char* name : {"llama/model-bf16.gguf", "gemma3/model-bf16.gguf"}) {
    const std::string path = model::golden_dir() + "/tiny/" + name;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "skipped: no " << path;
    testing::FakeWorld world(2);
    Node prefill(path, GetParam(), Role::kPrefill, &world);
    Node decode(path, GetParam(), Role::kDecode, &world);
    for (const int n : {17, 64, 130, 150}) {
      SCOPED_TRACE(fmt::format("{} {}", name, n));
      Node alone(path, GetParam(), Role::kBoth, nullptr);
      auto request = make_request(testing::random_tokens(n, uint32_t(n), 500), 12, 3);
      request.n_logprobs = 3;
      const Outcome expected = alone.answer(request);

      PrepareReceive prepare;
      prepare.prompt = request.prompt;
      prepare.end = whole_blocks(request.prompt);
      const auto prepared = decode.core->prepare(prepare).value();
      RemoteSend send = testing::HandoffFixture::make_send(request, prepared);
      send.id = RequestId{9};
      ASSERT_TRUE(prefill.core->check(send));
      bool sent = false;
      prefill.core->add(send, [&](const Result<SentKv>& result) { sent = result.has_value(); });
      prefill.run();
      EXPECT_TRUE(sent);
      request.leased = {prepared.lease, prepare.end};
      const Outcome got = decode.answer(request);
      EXPECT_EQ(got.choices.at(0).tokens, expected.choices.at(0).tokens);
      for (size_t i = 0; i < expected.choices.at(0).logprobs.size(); ++i) {
        EXPECT_EQ(got.choices.at(0).logprobs[i].logprob,
                  expected.choices.at(0).logprobs[i].logprob);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HandoffModel, ::testing::ValuesIn(model::runnable_kernels()),
                         [](const auto& info) { return std::string(linalg::name(info.param)); });

}  // namespace
}  // namespace baton::engine
