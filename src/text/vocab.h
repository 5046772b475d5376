// A checked vocabulary: what each token is, spells and decodes to, and which tokens are special.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/hash_tables.h"
#include "text/special_matcher.h"
#include "text/vocab_data.h"

namespace baton::text {

/// How a space is spelled in kCharBpe and kSpm vocabularies: U+2581.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

/// Immutable once created, so thread-safe.
class Vocab {
 public:
  /// Checks `data` and builds the tables. kCorrupt names what is wrong: no tokens, lists of
  /// different lengths, ids out of range, scores that are no numbers.
  [[nodiscard]] static Result<Vocab> create(VocabData data);

  [[nodiscard]] VocabModel model() const { return data_.model; }
  [[nodiscard]] const VocabData& data() const { return data_; }
  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(data_.tokens.size()); }
  [[nodiscard]] bool contains(TokenId id) const { return id >= 0 && id < size(); }
  [[nodiscard]] TokenType type(TokenId id) const { return types_[static_cast<size_t>(id)]; }
  /// Control and unknown tokens: structure that skip_special_tokens leaves out of a text.
  [[nodiscard]] bool is_special(TokenId id) const {
    return type(id) == TokenType::kControl || type(id) == TokenType::kUnknown;
  }
  /// The bytes that the token decodes to; for special tokens their name.
  [[nodiscard]] std::string_view bytes(TokenId id) const {
    const size_t i = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
  }
  /// The longest bytes() of any token.
  [[nodiscard]] size_t max_token_bytes() const { return max_token_bytes_; }

  /// What merging works on (bytes for kByteBpe, else the spelling) → id, or StringTable::kAbsent.
  [[nodiscard]] const StringTable& symbols() const { return symbols_; }
  /// kSpm: the user-defined tokens that are runs of spaces, ascending. As with Hugging Face they
  /// are pieces that merging makes, normal tokens here, but it makes them before all others and in
  /// this order: 33 spaces become 16 and 17 of them, even if a token of 31 is the longest.
  [[nodiscard]] const std::vector<TokenId>& space_runs() const { return space_runs_; }
  /// Appends the tokens for bytes that no symbol covers: byte tokens, else the unknown token, else
  /// nothing.
  void append_bytes(std::string_view bytes, std::vector<TokenId>& out) const;

  /// The token that the file spells so, or -1. Linear time.
  [[nodiscard]] TokenId find_spelling(std::string_view spelling) const;

  /// The matcher for user-defined tokens, with the special ones or without.
  [[nodiscard]] const SpecialMatcher& matcher(bool with_special) const {
    return with_special ? all_matcher_ : text_matcher_;
  }
  [[nodiscard]] bool strips_left(TokenId id) const;
  [[nodiscard]] bool strips_right(TokenId id) const;
  /// Tokens that end a generation, ascending.
  [[nodiscard]] const std::vector<TokenId>& end_ids() const { return end_ids_; }

 private:
  Vocab() = default;
  Status check() const;
  void find_types();
  void find_space_runs();
  void find_end_ids();
  void index_symbols();
  void index();
  [[nodiscard]] std::string decoded(TokenId id) const;

  VocabData data_;
  std::vector<TokenType> types_;  ///< [n_tokens]; data_.types with what names tell
  std::string bytes_;             ///< of all tokens, one after another
  std::vector<TokenId> space_runs_;
  std::vector<size_t> offsets_;  ///< [n_tokens + 1] into bytes_
  size_t max_token_bytes_ = 0;
  StringTable symbols_;
  std::array<TokenId, 256> byte_ids_{};  ///< token of each byte, or -1
  SpecialMatcher all_matcher_;
  SpecialMatcher text_matcher_;
  std::vector<TokenId> end_ids_;
};

}  // namespace baton::text
