#include "jinja/string_literal.h"

#include <charconv>

#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

/// \xNN, \uNNNN, \UNNNNNNNN at `at` (the letter); moves `at` to the last digit.
Eval<char32_t> decode_hex(std::string_view body, size_t& at) {
  const size_t n_digits = body[at] == 'x' ? 2 : body[at] == 'u' ? 4 : 8;
  const std::string_view digits = body.substr(at + 1, n_digits);
  uint32_t point = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), point, 16);
  if (digits.size() < n_digits || error != std::errc() || end != digits.data() + digits.size()) {
    return raise("string escape '\\{}' needs {} hexadecimal digits", body[at], n_digits);
  }
  at += n_digits;
  return char32_t{point};
}

Eval<void> append_hex(std::string& out, std::string_view body, size_t& at) {
  JINJA_TRY(char32_t point, decode_hex(body, at));
  // Two escapes that are a surrogate pair are one character.
  if (point >= 0xD800 && point < 0xDC00 && body.substr(at + 1, 2) == "\\u") {
    size_t next = at + 2;
    JINJA_TRY(const char32_t low, decode_hex(body, next));
    if (low >= 0xDC00 && low < 0xE000) {
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
      at = next;
    }
  }
  if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
    return raise("string escape is not a Unicode character");
  }
  append_point(out, point);
  return {};
}

void append_octal(std::string& out, std::string_view body, size_t& at) {
  uint32_t point = 0;
  size_t n_digits = 0;
  while (n_digits < 3 && at + n_digits < body.size() && body[at + n_digits] >= '0' &&
         body[at + n_digits] <= '7') {
    point = point * 8 + static_cast<uint32_t>(body[at + n_digits] - '0');
    ++n_digits;
  }
  at += n_digits - 1;
  append_point(out, point);
}

}  // namespace

Eval<std::string> decode_string_literal(std::string_view body) {
  std::string out;
  out.reserve(body.size());
  for (size_t at = 0; at < body.size(); ++at) {
    if (body[at] != '\\' || at + 1 == body.size()) {
      out += body[at];
      continue;
    }
    ++at;
    switch (body[at]) {
      case '\n':
        break;  // a line continuation
      case '\\':
      case '\'':
      case '"':
        out += body[at];
        break;
      case 'a':
        out += '\a';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'v':
        out += '\v';
        break;
      case 'N':
        return raise("string escape '\\N' is not supported, write the character itself");
      case 'x':
      case 'u':
      case 'U':
        JINJA_CHECK(append_hex(out, body, at));
        break;
      case '0':
      case '1':
      case '2':
      case '3':
      case '4':
      case '5':
      case '6':
      case '7':
        append_octal(out, body, at);
        break;
      default:
        out += '\\';
        out += body[at];
    }
  }
  return out;
}

}  // namespace baton::jinja
