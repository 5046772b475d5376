// Bytes a second of encoding and decoding, on English and on code: the repository's own files. With
// the real vocabularies where the model cache has them, else with a tiny one.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "text/bench_samples.h"

namespace baton::text {
namespace {

const std::string& sample(const std::string& kind) {
  static const std::string english = english_sample(BATON_SOURCE_DIR);
  static const std::string code = code_sample(BATON_SOURCE_DIR);
  return kind == "english" ? english : code;
}

const Tokenizer& tokenizer(const std::string& name) {
  static const BenchTokenizer smollm2 = bench_tokenizer("smollm2");
  static const BenchTokenizer gemma3 = bench_tokenizer("gemma3");
  return name == "smollm2" ? *smollm2.tokenizer : *gemma3.tokenizer;
}

void encode(benchmark::State& state, const std::string& vocab, const std::string& kind) {
  const std::string& text = sample(kind);
  const Tokenizer& t = tokenizer(vocab);
  size_t n_tokens = 0;
  for (auto _ : state) n_tokens = t.encode(text).size();
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.counters["bytes_per_token"] =
      static_cast<double>(text.size()) / static_cast<double>(n_tokens);
}

void decode(benchmark::State& state, const std::string& vocab, const std::string& kind) {
  const std::string& text = sample(kind);
  const Tokenizer& t = tokenizer(vocab);
  const auto ids = t.encode(text);
  for (auto _ : state) benchmark::DoNotOptimize(t.decode(ids));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

/// A text without a place to cut: all the work is in one heap.
void encode_run(benchmark::State& state, const std::string& vocab) {
  const std::string text(100'000, 'a');
  const Tokenizer& t = tokenizer(vocab);
  for (auto _ : state) benchmark::DoNotOptimize(t.encode(text));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

BENCHMARK_CAPTURE(encode, smollm2_english, "smollm2", "english");
BENCHMARK_CAPTURE(encode, smollm2_code, "smollm2", "code");
BENCHMARK_CAPTURE(encode, gemma3_english, "gemma3", "english");
BENCHMARK_CAPTURE(encode, gemma3_code, "gemma3", "code");
BENCHMARK_CAPTURE(decode, smollm2_english, "smollm2", "english");
BENCHMARK_CAPTURE(decode, gemma3_english, "gemma3", "english");
BENCHMARK_CAPTURE(encode_run, smollm2, "smollm2");
BENCHMARK_CAPTURE(encode_run, gemma3, "gemma3");

}  // namespace
}  // namespace baton::text
