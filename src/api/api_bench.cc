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
BENCHMARK(parse_long_chat)->Arg(1000)->Arg(220'000);

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
