// Token ids → text as they come: what is given out is always whole characters and never taken back.
#pragma once

#include <span>
#include <string>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace baton::text {

/// One sequence's state. The concatenation of all that push() and flush() return is exactly what
/// Tokenizer::decode gives for all ids at once. Owner: the sequence; thread-compatible. The
/// tokenizer must outlive it.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, const DecodeOptions& options = {})
      : tokenizer_(&tokenizer),
        skip_special_(options.skip_special_tokens),
        strip_space_(options.at_start && tokenizer.adds_space_prefix()) {}

  /// The text that is certain with these ids: valid UTF-8, perhaps empty. An incomplete character
  /// is held back (at most three bytes); bytes that no character starts with are U+FFFD at once.
  [[nodiscard]] std::string push(std::span<const TokenId> ids);
  [[nodiscard]] std::string push(TokenId id) { return push(std::span<const TokenId>(&id, 1)); }
  /// The end: U+FFFD if a character is incomplete, else nothing.
  [[nodiscard]] std::string flush();
  /// Whether an incomplete character is held back.
  [[nodiscard]] bool pending() const { return utf8_.pending(); }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool strip_space_;  ///< the next byte is the first, and a space there is dropped
  Utf8Stream utf8_;
};

}  // namespace baton::text
