// UTF-8: checking, and turning arbitrary bytes into valid text piece by piece.
//
// Source: the Unicode Standard, table 3-7 (well-formed sequences) and "U+FFFD Substitution of
// Maximal Subparts"; the result is that of Python's bytes.decode("utf-8", errors="replace").
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton::text {

/// U+FFFD in UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// What stands at the start of some bytes.
struct Utf8Step {
  enum class Kind { kChar, kInvalid, kIncomplete };
  Kind kind = Kind::kChar;
  size_t n_bytes = 0;  ///< of the character, of the maximal subpart, or all that is there
};

/// Looks at the start of `bytes` (not empty). kIncomplete: all of `bytes` is the proper beginning
/// of a character.
[[nodiscard]] Utf8Step utf8_step(std::string_view bytes);

/// Length in bytes of the longest valid prefix.
[[nodiscard]] size_t valid_utf8_prefix(std::string_view bytes);

[[nodiscard]] inline bool is_valid_utf8(std::string_view bytes) {
  return valid_utf8_prefix(bytes) == bytes.size();
}

/// The whole of `bytes` as valid UTF-8.
[[nodiscard]] std::string to_valid_utf8(std::string_view bytes);

/// The same for bytes that arrive in pieces: what was given out stands, whatever comes next, and
/// the concatenation equals to_valid_utf8 of all bytes. Holds back at most three bytes.
/// Thread-compatible.
class Utf8Stream {
 public:
  /// Appends to `out` what is certain now.
  void push(std::string_view bytes, std::string& out);
  /// The end of the bytes: appends U+FFFD if a character is incomplete. Ready for a new stream
  /// then.
  void flush(std::string& out);
  /// Whether bytes are held back.
  [[nodiscard]] bool pending() const { return !tail_.empty(); }

 private:
  std::string tail_;  ///< an incomplete character
};

}  // namespace baton::text
