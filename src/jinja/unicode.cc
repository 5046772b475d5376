#include "jinja/unicode.h"

#include <clocale>
#include <cwctype>

namespace baton::jinja {
namespace {

// Never freed: it is needed as long as the process lives.
locale_t utf8_locale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

bool is_class(char32_t point, int (*wide)(wint_t, locale_t), int (*ascii)(int)) {
  if (point < 0x80) return ascii(static_cast<int>(point)) != 0;
  return utf8_locale() != nullptr && wide(static_cast<wint_t>(point), utf8_locale()) != 0;
}

int ascii_alpha(int c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }
int ascii_upper(int c) { return c >= 'A' && c <= 'Z'; }
int ascii_lower(int c) { return c >= 'a' && c <= 'z'; }

void append_upper(std::string& out, char32_t point) {
  if (point < 0x80) {
    out += static_cast<char>(ascii_lower(static_cast<int>(point)) ? point - 0x20 : point);
    return;
  }
  switch (point) {  // SpecialCasing.txt, the unconditional ones in common use
    case 0xDF:
      out += "SS";
      return;
    case 0x149:
      out += "\u02BCN";
      return;
    case 0xFB00:
      out += "FF";
      return;
    case 0xFB01:
      out += "FI";
      return;
    case 0xFB02:
      out += "FL";
      return;
    case 0xFB03:
      out += "FFI";
      return;
    case 0xFB04:
      out += "FFL";
      return;
    default:
      break;
  }
  const locale_t locale = utf8_locale();
  append_point(
      out, locale ? static_cast<char32_t>(towupper_l(static_cast<wint_t>(point), locale)) : point);
}

void append_lower(std::string& out, char32_t point) {
  if (point < 0x80) {
    out += static_cast<char>(ascii_upper(static_cast<int>(point)) ? point + 0x20 : point);
    return;
  }
  if (point == 0x130) {
    out += "i\u0307";
    return;
  }
  const locale_t locale = utf8_locale();
  append_point(
      out, locale ? static_cast<char32_t>(towlower_l(static_cast<wint_t>(point), locale)) : point);
}

// A capital sigma is a final sigma after a letter and before a non-letter (Python's rule, without
// the case-ignorable characters in between).
bool is_final_sigma(std::string_view text, size_t begin, size_t end) {
  if (begin == 0) return false;
  size_t before = begin - 1;
  while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
  if (!is_alpha(next_point(text, before))) return false;
  return end >= text.size() || !is_alpha(next_point(text, end));
}

bool contains_point(std::string_view chars, char32_t wanted) {
  for (size_t byte = 0; byte < chars.size();) {
    if (next_point(chars, byte) == wanted) return true;
  }
  return false;
}

bool is_stripped(char32_t point, const std::string_view* chars) {
  return chars != nullptr ? contains_point(*chars, point) : is_space(point);
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      ++i;
      continue;
    }
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    if (byte < 0xC2 || byte > 0xF4 || i + length > text.size()) return false;
    char32_t point = byte & (0x7F >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return false;
      point = (point << 6) | (next & 0x3F);
    }
    constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < kSmallest[length] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
      return false;
    }
    i += length;
  }
  return true;
}

bool is_ascii(std::string_view text) {
  unsigned char all = 0;
  for (const char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

size_t count_points(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

char32_t next_point(std::string_view text, size_t& byte) {
  const auto lead = static_cast<unsigned char>(text[byte]);
  const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t point = length == 1 ? lead : lead & (0x7F >> length);
  for (size_t k = 1; k < length && byte + k < text.size(); ++k) {
    point = (point << 6) | (static_cast<unsigned char>(text[byte + k]) & 0x3F);
  }
  byte = byte + length < text.size() ? byte + length : text.size();
  return point;
}

void append_point(std::string& out, char32_t point) {
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xC0 | (point >> 6));
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    out += static_cast<char>(0xE0 | (point >> 12));
    out += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (point >> 18));
    out += static_cast<char>(0x80 | ((point >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  }
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t byte = 0;
  while (index > 0 && byte < text.size()) {
    (void)next_point(text, byte);
    --index;
  }
  return byte;
}

std::vector<std::string_view> split_points(std::string_view text) {
  std::vector<std::string_view> points;
  for (size_t byte = 0; byte < text.size();) {
    const size_t begin = byte;
    (void)next_point(text, byte);
    points.push_back(text.substr(begin, byte - begin));
  }
  return points;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_digit(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  // Digits outside ASCII count as letters in glibc; the decimal digits come in runs of ten.
  constexpr char32_t kZeros[] = {0x660, 0x6F0,  0x7C0,  0x966,  0x9E6, 0xA66, 0xAE6,
                                 0xB66, 0xBE6,  0xC66,  0xCE6,  0xD66, 0xE50, 0xED0,
                                 0xF20, 0x1040, 0x17E0, 0x1810, 0xFF10};
  for (const char32_t zero : kZeros) {
    if (c >= zero && c < zero + 10) return true;
  }
  return false;
}

bool is_alpha(char32_t c) {
  return is_class(c, iswalpha_l, ascii_alpha) && !(c >= 0x80 && is_digit(c));
}
bool is_upper(char32_t c) { return is_class(c, iswupper_l, ascii_upper); }
bool is_lower(char32_t c) { return is_class(c, iswlower_l, ascii_lower); }

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  if (c < 0xA1 || c == 0xAD || is_space(c)) return false;
  if ((c >= 0x200B && c <= 0x200F) || (c >= 0x202A && c <= 0x202E) ||
      (c >= 0x2060 && c <= 0x206F)) {
    return false;
  }
  if ((c >= 0xE000 && c <= 0xF8FF) || c == 0xFEFF || (c >= 0xFFF0 && c <= 0xFFFB) || c >= 0xE0000) {
    return false;
  }
  return utf8_locale() == nullptr || iswprint_l(static_cast<wint_t>(c), utf8_locale()) != 0;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t byte = 0; byte < text.size();) append_upper(out, next_point(text, byte));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t byte = 0; byte < text.size();) {
    const size_t begin = byte;
    const char32_t point = next_point(text, byte);
    if (point == 0x3A3 && is_final_sigma(text, begin, byte)) {
      append_point(out, 0x3C2);
    } else {
      append_lower(out, point);
    }
  }
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  std::string out;
  size_t byte = 0;
  append_upper(out, next_point(text, byte));
  // Title case differs from upper case where the latter is several letters.
  if (out.size() > 1 && ascii_upper(out[0]) && is_ascii(out))
    out = out.substr(0, 1) + to_lower(out.substr(1));
  return out + to_lower(text.substr(byte));
}

std::string_view strip_left(std::string_view text, const std::string_view* chars) {
  size_t begin = 0;
  while (begin < text.size()) {
    size_t next = begin;
    if (!is_stripped(next_point(text, next), chars)) break;
    begin = next;
  }
  return text.substr(begin);
}

std::string_view strip_right(std::string_view text, const std::string_view* chars) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    size_t next = begin;
    if (!is_stripped(next_point(text, next), chars)) break;
    end = begin;
  }
  return text.substr(0, end);
}

}  // namespace baton::jinja
