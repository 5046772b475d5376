// Splits text into the words that byte-level BPE merges within: the pre-tokeniser patterns of the
// known model families, run by PCRE2.
//
// A pre-tokeniser is a list of patterns. Each one cuts every piece so far into its matches and what
// lies between them; the words are the pieces after the last pattern.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace baton::text {

/// What is known about a `tokenizer.ggml.pre`.
struct PreRule {
  std::vector<std::string_view> patterns;
  bool ignore_merges = false;  ///< a word that is a token is that token, whatever the merges say
  bool add_bos = false;        ///< the default where the file doesn't say
};

/// kUnsupported, naming `pre` and what is known, for a pre-tokeniser that isn't known.
[[nodiscard]] Result<PreRule> find_pre_rule(std::string_view pre);

/// Compiled patterns. Immutable, so thread-safe: match state is per thread.
class PreTokenizer {
 public:
  /// Patterns in PCRE2's syntax, matched with UTF and UCP; `\s` and `\S` mean Unicode's White_Space
  /// as in the Rust patterns that they come from. kInvalidArgument for one that doesn't compile.
  [[nodiscard]] static Result<PreTokenizer> create(const std::vector<std::string_view>& patterns);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  /// Appends the end offset of each word of `text` (valid UTF-8) to `ends`; words are not empty and
  /// cover all of the text. A match that exceeds PCRE2's limits is no match.
  void split(std::string_view text, std::vector<size_t>& ends) const;

 private:
  struct Code;
  PreTokenizer();
  std::vector<std::unique_ptr<Code>> codes_;
};

}  // namespace baton::text
