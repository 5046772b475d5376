#include "api/json_writer.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iterator>

namespace baton::api {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Length of the UTF-8 sequence at the start of `text` (not empty), 0 if it is not valid.
/// Ranges of the second byte: Unicode 15, table 3-7.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  }
  if (length == 0 || text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

void append_escaped_ascii(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      break;
    case '\\':
      out += "\\\\";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    default:
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
        fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
      } else {
        out += c;
      }
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    if (length == 1) {
      append_escaped_ascii(out, text.front());
    } else if (length == 0) {
      out += kReplacement;
    } else if (text.substr(0, length) == "\xE2\x80\xA8") {
      out += "\\u2028";  // line separators end a line for some SSE and JavaScript readers
    } else if (text.substr(0, length) == "\xE2\x80\xA9") {
      out += "\\u2029";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    out += length == 0 ? kReplacement : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

int64_t count_code_points(std::string_view text) {
  int64_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  out_ += bracket;
  need_comma_ = true;
  return *this;
}

void JsonWriter::separate() {
  if (need_comma_) out_ += ',';
  need_comma_ = true;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  out_ += '"';
  out_ += name;
  out_ += "\":";
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::key_escaped(std::string_view name) {
  separate();
  append_json_string(out_, name);
  out_ += ':';
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  append_json_string(out_, text);
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) {
  separate();
  char digits[20];  // a sign and 19 digits
  out_.append(digits, std::to_chars(std::begin(digits), std::end(digits), value).ptr);
  return *this;
}

JsonWriter& JsonWriter::number(float value) {
  separate();
  constexpr float kInfinity = 9999.0F;
  if (!std::isfinite(value)) value = value > 0 ? kInfinity : -kInfinity;
  fmt::format_to(std::back_inserter(out_), "{}", value);
  return *this;
}

JsonWriter& JsonWriter::exact(float value) {
  if (std::isnan(value)) return raw("\"nan\"");
  if (std::isinf(value)) return raw(value > 0 ? "\"inf\"" : "\"-inf\"");
  if (value == 0) return raw(std::signbit(value) ? "-0.0" : "0");
  separate();
  // Not the shortest text of the float: read as a double and then rounded, it could be another one.
  fmt::format_to(std::back_inserter(out_), "{}", static_cast<double>(value));
  return *this;
}

JsonWriter& JsonWriter::digits(uint64_t value) {
  separate();
  fmt::format_to(std::back_inserter(out_), "\"{}\"", value);
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

}  // namespace baton::api
