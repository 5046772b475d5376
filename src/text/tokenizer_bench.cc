// Bytes a second of encoding and decoding, on English and on code: the repository's own files. With
// the real vocabularies where the model cache has them, else with a tiny one.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "format/gguf.h"
#include "text/test_vocab.h"
#include "text/tokenizer.h"
#include "text/vocab_gguf.h"

namespace baton::text {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// All files of a folder with one of the extensions, in order.
std::string read_tree(const fs::path& folder, const std::vector<std::string>& extensions) {
  std::map<fs::path, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension();
    if (std::find(extensions.begin(), extensions.end(), extension) != extensions.end()) {
      files[entry.path()] = read_file(entry.path());
    }
  }
  std::string all;
  for (const auto& [path, text] : files) all += text;
  return all;
}

const std::string& sample(const std::string& kind) {
  static const std::string english = read_file(fs::path(BATON_SOURCE_DIR) / "LICENSE") +
                                     read_tree(fs::path(BATON_SOURCE_DIR) / "docs", {".md"});
  static const std::string code = read_tree(fs::path(BATON_SOURCE_DIR) / "src", {".cc", ".h"});
  return kind == "english" ? english : code;
}

std::unique_ptr<const Tokenizer> load(const std::string& name) {
  const char* cache = std::getenv("BATON_CACHE");
  const char* home = std::getenv("HOME");
  const fs::path models =
      (cache != nullptr ? fs::path(cache)
                        : fs::path(home != nullptr ? home : "") / ".cache/baton") /
      "models";
  const std::string file =
      name == "smollm2" ? "SmolLM2-135M-Instruct.Q4_1.gguf" : "gemma-3-270m-q4_k_m.gguf";
  VocabData data = name == "smollm2" ? test_byte_bpe() : test_spm();
  if (fs::exists(models / file)) {
    if (const auto gguf = format::GgufFile::open((models / file).string())) {
      if (auto real = vocab_from_gguf(gguf->metadata())) data = std::move(*real);
    }
  }
  auto tokenizer = Tokenizer::create(std::move(data));
  return tokenizer ? std::move(*tokenizer) : nullptr;
}

const Tokenizer& tokenizer(const std::string& name) {
  static const std::unique_ptr<const Tokenizer> smollm2 = load("smollm2");
  static const std::unique_ptr<const Tokenizer> gemma3 = load("gemma3");
  return name == "smollm2" ? *smollm2 : *gemma3;
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
