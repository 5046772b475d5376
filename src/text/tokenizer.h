// The tokenizer: text → token ids and back. Byte-level BPE and SentencePiece-style vocabularies.
//
// Layer: above format (a GGUF file gives a VocabData), below the frontend. Encoding goes: special
// and user-defined tokens are cut out; what lies between is cut into words (by the model's own
// pattern, or at spaces); each word is merged into tokens, or known from the cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/vocab_data.h"

namespace baton::text {

struct EncodeOptions {
  bool add_special = true;    ///< BOS and EOS as the vocabulary asks
  bool parse_special = true;  ///< "<|im_end|>" in the text is that token; else it is mere text
};

struct DecodeOptions {
  bool skip_special_tokens = true;
  /// The ids are a whole text: where the tokenizer puts a space before a text, take it off again.
  /// False for the continuation of a prompt.
  bool at_start = false;
};

/// Immutable but for its word cache; thread-safe.
class Tokenizer {
 public:
  /// kCorrupt or kUnsupported, with a message that names what is wrong with the vocabulary.
  [[nodiscard]] static Result<std::unique_ptr<const Tokenizer>> create(VocabData data);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Any bytes will do: those that are no UTF-8 become byte tokens. Time is O(n log n) at worst;
  /// the result has at most one token a byte, and at least one per max_token_bytes() (but for the
  /// white space that some special tokens swallow), so a text can be refused as too long by its
  /// size.
  [[nodiscard]] std::vector<TokenId> encode(std::string_view text,
                                            const EncodeOptions& options = {}) const;
  /// Valid UTF-8 (U+FFFD for what isn't). Ids outside the vocabulary give nothing.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids,
                                   const DecodeOptions& options = {}) const;

  [[nodiscard]] int32_t n_tokens() const;
  [[nodiscard]] bool contains(TokenId id) const { return id >= 0 && id < n_tokens(); }
  /// The bytes that the token stands for, perhaps a part of a character; the name of a special
  /// token. Empty for ids outside the vocabulary. As OpenAI's logprobs `bytes`.
  [[nodiscard]] std::string_view token_bytes(TokenId id) const;
  /// The same as text, with U+FFFD for what is no UTF-8: OpenAI's logprobs `token`.
  [[nodiscard]] std::string token_str(TokenId id) const;
  /// As the vocabulary spells it ("Ġworld", "▁world"), always valid UTF-8: vLLM's `token_strs`.
  [[nodiscard]] std::string token_spelling(TokenId id) const;
  [[nodiscard]] size_t max_token_bytes() const;
  /// Control and unknown tokens, which skip_special_tokens leaves out.
  [[nodiscard]] bool is_special(TokenId id) const;
  /// The token spelled so in the vocabulary, or -1. Linear time: for start-up.
  [[nodiscard]] TokenId find_token(std::string_view spelling) const;

  [[nodiscard]] TokenId bos_id() const;  ///< -1: none
  [[nodiscard]] TokenId eos_id() const;  ///< -1: none
  /// All tokens that end a generation: EOS, end of turn, end of message. Ascending.
  [[nodiscard]] const std::vector<TokenId>& end_ids() const;
  [[nodiscard]] bool adds_bos() const;
  [[nodiscard]] bool adds_eos() const;
  /// A space is put before a text and taken off at the start of a decoded one.
  [[nodiscard]] bool adds_space_prefix() const;
  /// "byte-level BPE, pre-tokeniser smollm", for `inspect`.
  [[nodiscard]] std::string description() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::text
