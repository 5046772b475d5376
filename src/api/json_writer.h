// Writes JSON straight into a string: no document in between, because a chunk is built for every
// token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace baton::api {

/// Appends `text` with quotes and escapes. Bytes that are not UTF-8 become U+FFFD, so that what we
/// send is always valid JSON. Controls, U+2028 and U+2029 are escaped.
void append_json_string(std::string& out, std::string_view text);

/// True if `text` is valid UTF-8 (no overlong forms, surrogates or values over U+10FFFF).
[[nodiscard]] bool is_utf8(std::string_view text);

/// `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD.
[[nodiscard]] std::string to_valid_utf8(std::string_view text);

/// Number of Unicode code points that begin in `text`.
[[nodiscard]] int64_t count_code_points(std::string_view text);

/// Commas and nesting are the writer's business, order and balance the caller's. Thread-compatible.
class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  /// `name` must need no escapes; for keys that come from outside use key_escaped.
  JsonWriter& key(std::string_view name);
  JsonWriter& key_escaped(std::string_view name);
  JsonWriter& string(std::string_view text);
  JsonWriter& integer(int64_t value);
  /// Shortest text that reads back as the same float; infinities and NaN, which JSON can't say, are
  /// clamped to ±9999 as vLLM does for log probabilities.
  JsonWriter& number(float value);
  /// Text that every reader of doubles reads back as the very same float; infinities and NaN as the
  /// strings "inf", "-inf" and "nan".
  JsonWriter& exact(float value);
  /// All 64 bits, as a string of decimal digits.
  JsonWriter& digits(uint64_t value);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  /// `json` is already valid JSON.
  JsonWriter& raw(std::string_view json);
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string out_;
  bool need_comma_ = false;
};

}  // namespace baton::api
