// The cost of one stream chunk, of parsing a long chat, and of a frame from engine to router.
#include <benchmark/benchmark.h>

#include "api/microserving.h"
#include "api/parse.h"
#include "api/responses.h"

namespace baton::api {
namespace {

void stream_one_token(benchmark::State& state) {
  const ResponseHead head{.chat = true,
                          .id = "chatcmpl-0123456789abcdef00000001",
                          .created_s = 1700000000,
                          .model = "smollm2-135m",
                          .fingerprint = "baton-0.1"};
  ChoiceOutput choice;
  choice.text = " token";
  for (auto _ : state) benchmark::DoNotOptimize(stream_chunk(head, choice));
}
BENCHMARK(stream_one_token);

void parse_long_chat(benchmark::State& state) {
  const std::string body = R"({"messages":[{"role":"user","content":")" +
                           std::string(static_cast<size_t>(state.range(0)), 'x') + R"("}]})";
  RequestLimits limits;
  limits.n_vocab = 1000;
  for (auto _ : state) benchmark::DoNotOptimize(parse_chat_request(body, limits));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(body.size()));
}
BENCHMARK(parse_long_chat)->Arg(1000)->Arg(200'000);

/// A body of so many bytes that asks for a completion of token ids.
void parse_token_ids(benchmark::State& state) {
  std::string body = R"({"prompt":[)";
  for (int id = 1; body.size() < static_cast<size_t>(state.range(0)); id = id * 31 % 49'999) {
    body += std::to_string(id) + ",";
  }
  body += "7]}";
  RequestLimits limits;
  limits.n_vocab = 50'000;
  for (auto _ : state) benchmark::DoNotOptimize(parse_completion_request(body, limits));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(body.size()));
}
BENCHMARK(parse_token_ids)->Arg(1000)->Arg(200'000);

/// What router and engine do for each other with a prompt of so many tokens.
void write_prompt(benchmark::State& state) {
  TokenRequest request;
  for (int64_t i = 0; i < state.range(0); ++i) {
    request.prompt.push_back(static_cast<TokenId>(i * 31 % 49'999));
  }
  for (auto _ : state) benchmark::DoNotOptimize(write_start_generate({"session", request}));
}
BENCHMARK(write_prompt)->Arg(1000)->Arg(25'000);

void read_prompt(benchmark::State& state) {
  TokenRequest request;
  request.id = RequestId{1};
  for (int64_t i = 0; i < state.range(0); ++i) {
    request.prompt.push_back(static_cast<TokenId>(i * 31 % 49'999));
  }
  const std::string body = write_start_generate({"session", request});
  const WireLimits limits{.n_vocab = 50'000, .context_tokens = 100'000, .block_tokens = 16};
  if (!read_start_generate(body, limits)) return state.SkipWithError("refused");
  for (auto _ : state) benchmark::DoNotOptimize(read_start_generate(body, limits));
}
BENCHMARK(read_prompt)->Arg(1000)->Arg(25'000);

/// One step of an engine with so many requests: a token for each.
Frame frame_of(int64_t n_requests) {
  Frame frame;
  for (int64_t i = 0; i < n_requests; ++i) {
    TokenEvent event;
    event.tokens = {static_cast<TokenId>(1000 + i)};
    frame.updates.push_back({RequestId{static_cast<uint64_t>(100'000 + i)}, std::nullopt, {event}});
  }
  return frame;
}

void write_step(benchmark::State& state) {
  const Frame frame = frame_of(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(write_frame(frame));
}
BENCHMARK(write_step)->Arg(1)->Arg(64);

void read_step(benchmark::State& state) {
  const std::string line = write_frame(frame_of(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(read_frame(line, 50'000));
}
BENCHMARK(read_step)->Arg(1)->Arg(64);

}  // namespace
}  // namespace baton::api
