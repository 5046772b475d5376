// UTF-8 and the Unicode properties that Python's string methods ask for. All strings here are valid
// UTF-8 (Template::parse and the JSON reader check); positions are code points unless said
// otherwise.
//
// Case and character classes come from glibc's built-in C.UTF-8 locale, with the multi-character
// upper-case forms that towupper can't express added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton::jinja {

[[nodiscard]] bool is_valid_utf8(std::string_view text);
[[nodiscard]] bool is_ascii(std::string_view text);
/// Number of code points.
[[nodiscard]] size_t count_points(std::string_view text);
/// Reads the code point at `byte` and moves `byte` past it.
[[nodiscard]] char32_t next_point(std::string_view text, size_t& byte);
void append_point(std::string& out, char32_t point);
/// Byte offset of code point `index` (text.size() if beyond the end).
[[nodiscard]] size_t byte_offset(std::string_view text, size_t index);
[[nodiscard]] std::vector<std::string_view> split_points(std::string_view text);

/// As str.isspace of one character.
[[nodiscard]] bool is_space(char32_t point);
[[nodiscard]] bool is_alpha(char32_t point);
[[nodiscard]] bool is_digit(char32_t point);  ///< decimal digits of any script
[[nodiscard]] bool is_upper(char32_t point);
[[nodiscard]] bool is_lower(char32_t point);
/// Whether repr() shows the character as it is.
[[nodiscard]] bool is_printable(char32_t point);

[[nodiscard]] std::string to_upper(std::string_view text);
[[nodiscard]] std::string to_lower(std::string_view text);
/// First character in upper case, the rest in lower case.
[[nodiscard]] std::string capitalize(std::string_view text);

/// Strips white space, or any character of `chars` if it is not null.
[[nodiscard]] std::string_view strip_left(std::string_view text, const std::string_view* chars);
[[nodiscard]] std::string_view strip_right(std::string_view text, const std::string_view* chars);

}  // namespace baton::jinja
