// For benchmarks: the real vocabularies where the model cache has them (else tiny ones), and texts.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "text/test_vocab.h"
#include "text/tokenizer.h"
#include "text/vocab_gguf.h"

namespace baton::text {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// A folder's files with one of the extensions, in order, one after another.
inline std::string read_tree(const std::filesystem::path& folder,
                             const std::vector<std::string>& extensions) {
  std::map<std::filesystem::path, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension();
    if (std::find(extensions.begin(), extensions.end(), extension) == extensions.end()) continue;
    files[entry.path()] = read_file(entry.path());
  }
  std::string all;
  for (const auto& [path, text] : files) all += text;
  return all;
}

/// The repository's own files, `source`: its licence and documentation, or its code.
inline std::string english_sample(const std::filesystem::path& source) {
  return read_file(source / "LICENSE") + read_tree(source / "docs", {".md"});
}
inline std::string code_sample(const std::filesystem::path& source) {
  return read_tree(source / "src", {".cc", ".h"});
}

/// A real tokenizer, or one of a tiny vocabulary of the same kind.
struct BenchTokenizer {
  std::unique_ptr<const Tokenizer> tokenizer;
  bool real = false;
};

/// `name`: "smollm2" (byte-level BPE) or "gemma3" (SentencePiece).
inline BenchTokenizer bench_tokenizer(std::string_view name) {
  namespace fs = std::filesystem;
  const char* cache = std::getenv("BATON_CACHE");
  const char* home = std::getenv("HOME");
  const fs::path folder =
      cache != nullptr ? fs::path(cache) : fs::path(home != nullptr ? home : "") / ".cache/baton";
  const fs::path file =
      folder / "models" /
      (name == "smollm2" ? "SmolLM2-135M-Instruct.Q4_1.gguf" : "gemma-3-270m-q4_k_m.gguf");
  BenchTokenizer out;
  VocabData data = name == "smollm2" ? test_byte_bpe() : test_spm();
  if (fs::exists(file)) {
    if (const auto gguf = format::GgufFile::open(file.string())) {
      if (auto found = vocab_from_gguf(gguf->metadata())) {
        data = std::move(*found);
        out.real = true;
      }
    }
  }
  auto made = Tokenizer::create(std::move(data));
  if (made) out.tokenizer = std::move(*made);
  return out;
}

}  // namespace baton::text
