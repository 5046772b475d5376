// For the engine's tests: a core over the stand-in model, requests, and what came back.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/core.h"
#include "testing/manual_clock.h"
#include "testing/stand_in_model.h"

namespace baton::testing {

/// Bytes of one KV block of the stand-in model.
inline constexpr size_t kStandInBlockBytes = 1024;

/// What one choice was sent.
struct ChoiceOutcome {
  std::vector<TokenId> tokens;
  std::vector<LogprobEntry> logprobs;
  std::optional<FinishReason> finish;
  std::optional<TokenId> stop_id;
  std::string error;
  bool after_finish = false;  ///< an event came after the last one
};

/// What one request was sent.
struct Outcome {
  std::optional<PromptInfo> prompt;
  int n_prompts = 0;
  bool event_before_prompt = false;
  std::map<int, ChoiceOutcome> choices;

  void take(RequestUpdate update) {
    if (update.prompt) {
      ++n_prompts;
      prompt = std::move(update.prompt);
    }
    for (TokenEvent& event : update.events) {
      event_before_prompt |= !prompt;
      ChoiceOutcome& choice = choices[event.choice];
      choice.after_finish |= choice.finish.has_value();
      choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
      std::move(event.logprobs.begin(), event.logprobs.end(), std::back_inserter(choice.logprobs));
      if (event.finish) choice.finish = event.finish;
      if (event.stop_id) choice.stop_id = event.stop_id;
      choice.error += event.error;
    }
  }
  [[nodiscard]] int n_finished() const {
    return static_cast<int>(std::count_if(choices.begin(), choices.end(), [](const auto& entry) {
      return entry.second.finish.has_value();
    }));
  }
};

/// What a core may have besides; either may be null.
struct CoreExtras {
  Trace* trace = nullptr;
  shmem::Heap* heap = nullptr;
};

/// A core, its surroundings and every outcome. One thread.
class CoreFixture {
 public:
  explicit CoreFixture(engine::EngineOptions options = {}, int n_blocks = 1024,
                       const StandInOptions& model_options = {}, const CoreExtras& extras = {})
      : model(model_options), metrics(Labels{{"model_name", "stand-in"}}) {
    options.kv_bytes = kStandInBlockBytes * static_cast<size_t>(n_blocks);
    core = engine::EngineCore::create(options, {.model = &model,
                                                .clock = &clock,
                                                .metrics = &metrics,
                                                .trace = extras.trace,
                                                .heap = extras.heap})
               .value();
  }

  /// Submits and gives back the id under which outcomes() has what came of it.
  RequestId add(TokenRequest request) {
    request.id = RequestId{++n_added_};
    Outcome& outcome = outcomes[request.id];
    core->add(request, [&outcome](RequestUpdate update) { outcome.take(std::move(update)); });
    return request.id;
  }
  bool step() {
    const bool worked = core->step();
    clock.advance(1'000'000);
    core->emit();
    core->publish_metrics();
    return worked;
  }
  void run() {
    for (int64_t n_steps = 0; step(); ++n_steps) BATON_CHECK(n_steps < 100'000, "no end in sight");
  }
  [[nodiscard]] const std::vector<TokenId>& tokens(RequestId id, int choice = 0) {
    return outcomes[id].choices[choice].tokens;
  }
  [[nodiscard]] kv::BlockCounts blocks() const { return core->stats().blocks; }

  ManualClock clock;
  StandInModel model;
  MetricsRegistry metrics;
  std::map<RequestId, Outcome> outcomes;
  std::unique_ptr<engine::EngineCore> core;

 private:
  uint64_t n_added_ = 0;
};

/// `n` tokens that depend on `seed`.
inline std::vector<TokenId> random_tokens(int n, uint32_t seed, int n_vocab = 64) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(random() % uint32_t(n_vocab)));
  return tokens;
}

/// A request for `max_tokens` tokens, sampled with `seed`.
inline TokenRequest make_request(std::vector<TokenId> prompt, int max_tokens, uint64_t seed = 0) {
  TokenRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.seed = seed;
  return request;
}

/// The outcome of `request` alone, on an engine that has never seen anything else.
inline Outcome run_alone(const TokenRequest& request, const engine::EngineOptions& options = {},
                         const StandInOptions& model_options = {}) {
  CoreFixture alone(options, 1024, model_options);
  const RequestId id = alone.add(request);
  alone.run();
  return alone.outcomes[id];
}

}  // namespace baton::testing
