// What the frontend needs of a model's tokenizer and chat template. Implemented over src/text by
// model_codec.h; tests bring a codec of their own, so they need no vocabulary.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/request.h"
#include "base/ids.h"
#include "base/result.h"

namespace baton::frontend {

/// The text of one growing sequence of tokens. Thread-compatible.
class TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  /// Text that became certain with this token: whole characters only, never taken back.
  [[nodiscard]] virtual std::string push(TokenId id) = 0;
  /// What is left at the end: bytes of an incomplete character as U+FFFD.
  [[nodiscard]] virtual std::string finish() = 0;
};

struct DecodeMode {
  bool skip_special = true;
  bool at_start = false;  ///< a whole text, not the continuation of one
};

/// Immutable; all functions are thread-safe.
class TextCodec {
 public:
  virtual ~TextCodec() = default;
  /// Names of special tokens in the text become those tokens; `add_special` adds BOS (EOS, …) as
  /// the model wants it.
  [[nodiscard]] virtual Result<std::vector<TokenId>> encode(std::string_view text,
                                                            bool add_special) const = 0;
  [[nodiscard]] virtual std::unique_ptr<TextDecoder> decoder(const DecodeMode& mode) const = 0;
  /// The bytes one token stands for, special ones by their name; may be part of a character.
  [[nodiscard]] virtual std::string piece(TokenId id) const = 0;
  /// A token as the vocabulary spells it ("Ġworld", "▁world"): token_strs of /tokenize.
  [[nodiscard]] virtual std::string spelling(TokenId id) const = 0;
  [[nodiscard]] virtual bool is_special(TokenId id) const = 0;
  /// No token stands for more bytes than this: a text of n bytes has at least n / this tokens.
  [[nodiscard]] virtual size_t max_piece_bytes() const = 0;
  /// The chat template's text, left open after the last content if that is to be continued.
  /// kInvalidArgument: the model has none, or it refuses these messages.
  [[nodiscard]] virtual Result<std::string> render(const api::ChatPrompt& prompt) const = 0;

  /// All of `ids` as text.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, const DecodeMode& mode) const {
    const auto text_decoder = decoder(mode);
    std::string text;
    for (const TokenId id : ids) text += text_decoder->push(id);
    return text + text_decoder->finish();
  }
};

}  // namespace baton::frontend
