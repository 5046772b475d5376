// The cost of one stream chunk and of parsing a long chat.
#include <benchmark/benchmark.h>

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

}  // namespace
}  // namespace baton::api
