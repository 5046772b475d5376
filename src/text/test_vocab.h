// Small vocabularies of our own for tests, benchmarks and fuzzing: no file is needed for them.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "text/byte_alphabet.h"
#include "text/utf8.h"
#include "text/vocab.h"

namespace baton::text {

inline constexpr std::string_view kTestWords[] = {
    " the", "the",   " and",   "ing",    " a", "aa",   "aaa",    "aaaa", "aaaaaaaa", " in",
    "er",   "hello", " world", " hello", "  ", "    ", "return", " x",   "==",       "\n\n",
    "é",    "日本",  "本語",   "😀",      "ab", "abab", "ba",     "bab",  "cab",      " is"};

/// Characters of valid UTF-8, or bytes if `bytes`.
inline std::vector<std::string> test_letters(std::string_view text, bool bytes) {
  std::vector<std::string> letters;
  while (!text.empty()) {
    const size_t n = bytes ? 1 : utf8_step(text).n_bytes;
    letters.emplace_back(text.substr(0, n));
    text.remove_prefix(n);
  }
  return letters;
}

/// Special tokens 0 to 3 ("<|endoftext|>" BOS, "<|im_start|>", "<|im_end|>" EOS, user-defined
/// "<think>"), then the 256 bytes, then the prefixes of kTestWords, merged letter by letter.
inline VocabData test_byte_bpe() {
  VocabData data;
  data.model = VocabModel::kByteBpe;
  data.pre = "gpt-2";
  data.tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>"};
  data.types = {TokenType::kControl, TokenType::kControl, TokenType::kControl,
                TokenType::kUserDefined};
  data.bos_id = 0;
  data.eos_id = 2;
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(alphabet_from_bytes(std::string(1, static_cast<char>(byte))));
  }
  std::unordered_set<std::string> known(data.tokens.begin(), data.tokens.end());
  for (const std::string_view word : kTestWords) {
    std::string prefix;
    for (const std::string& letter : test_letters(word, true)) {
      const std::string spelled = alphabet_from_bytes(letter);
      if (!prefix.empty()) {
        if (known.insert(prefix + spelled).second) data.tokens.push_back(prefix + spelled);
        data.merges.push_back(prefix + " " + spelled);
      }
      prefix += spelled;
    }
  }
  // Merges of two long halves, as real vocabularies have them.
  data.merges.insert(data.merges.begin(), {"aa aa", "aaaa aaaa", "ab ab"});
  data.types.resize(data.tokens.size(), TokenType::kNormal);
  return data;
}

/// "<unk>", "<s>" BOS, "</s>" EOS, the byte tokens, then the letters and prefixes of kTestWords
/// with spaces as U+2581; longer pieces have better scores, some of them equal.
inline VocabData test_spm() {
  VocabData data;
  data.model = VocabModel::kSpm;
  data.tokens = {"<unk>", "<s>", "</s>"};
  data.types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  data.scores = {0, 0, 0};
  data.unk_id = 0;
  data.bos_id = 1;
  data.eos_id = 2;
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    data.types.push_back(TokenType::kByte);
    data.scores.push_back(0);
  }
  std::unordered_set<std::string> known(data.tokens.begin(), data.tokens.end());
  const auto add = [&](const std::string& piece, float score) {
    if (!known.insert(piece).second) return;
    data.tokens.push_back(piece);
    data.types.push_back(TokenType::kNormal);
    data.scores.push_back(score);
  };
  for (const std::string_view word : kTestWords) {
    std::string prefix;
    for (const std::string& letter : test_letters(word, false)) {
      const std::string spelled = letter == " " ? std::string(kSpaceMark) : letter;
      add(spelled, -1000);
      prefix += spelled;
      add(prefix, -static_cast<float>((prefix.size() * 7) % 11) - 1);
    }
  }
  return data;
}

/// test_spm, then user-defined runs of 2 to kLongestTestRun spaces, spelled with spaces or U+2581,
/// of the worst score: as Gemma's vocabularies have them.
inline constexpr size_t kLongestTestRun = 31;
inline VocabData test_spm_runs() {
  VocabData data = test_spm();
  for (std::string& token : data.tokens) {
    if (token.starts_with("▁▁")) token = "<was a run>" + token;
  }
  std::string marks(kSpaceMark);
  for (size_t n = 2; n <= kLongestTestRun; ++n) {
    marks += kSpaceMark;
    data.tokens.push_back(n % 2 == 0 ? std::string(n, ' ') : marks);
    data.types.push_back(TokenType::kUserDefined);
    data.scores.push_back(-5000);
  }
  return data;
}

/// test_byte_bpe's words over characters, with byte tokens.
inline VocabData test_char_bpe() {
  VocabData data = test_spm();
  data.model = VocabModel::kCharBpe;
  data.scores.clear();
  data.merges = {"aa aa", "aaaa aaaa", "ab ab"};
  for (const std::string_view word : kTestWords) {
    std::string prefix;
    for (const std::string& letter : test_letters(word, false)) {
      const std::string spelled = letter == " " ? std::string(kSpaceMark) : letter;
      if (!prefix.empty()) data.merges.push_back(prefix + " " + spelled);
      prefix += spelled;
    }
  }
  return data;
}

}  // namespace baton::text
