#include "jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/string_literal.h"
#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_char(char c) { return is_name_start(c) || is_digit_char(c); }

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  [[nodiscard]] Eval<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      JINJA_CHECK(located(lex_root()));
    }
    push(TokenKind::kEnd, "end of template");
    return std::move(tokens_);
  }

 private:
  Eval<void> located(Eval<void> result) {
    if (!result && result.error().line == 0) result.error().line = line_;
    return result;
  }

  [[nodiscard]] bool starts_with(std::string_view text, size_t at) const {
    return source_.compare(at, text.size(), text) == 0;
  }
  [[nodiscard]] bool has(std::string_view text) const { return starts_with(text, at_); }

  void push(TokenKind kind, std::string_view text) {
    tokens_.push_back({kind, line_, std::string(text), 0, 0});
  }

  /// Moves on by `n` bytes and counts the lines.
  void advance(size_t n) {
    const std::string_view passed = source_.substr(at_, n);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    if (n > 0) line_starting_ = passed.back() == '\n';
    at_ += n;
  }
  void skip_space() {
    const std::string_view rest = source_.substr(at_);
    advance(rest.size() - strip_left(rest, nullptr).size());
  }

  /// Text up to `end`, where a tag with the white-space sign `sign` begins.
  void push_data(size_t end, char sign, bool is_variable) {
    std::string_view text = source_.substr(at_, end - at_);
    if (sign == '-') {
      text = strip_right(text, nullptr);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_begin > 0 || line_starting_) &&
          strip_left(text.substr(line_begin), nullptr).empty()) {
        text = text.substr(0, line_begin);
      }
    }
    if (!text.empty()) push(TokenKind::kData, text);
    advance(end - at_);
  }

  [[nodiscard]] char sign_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  [[nodiscard]] size_t find_tag() const {
    for (size_t at = source_.find('{', at_); at != std::string_view::npos;
         at = source_.find('{', at + 1)) {
      if (at + 1 < source_.size() &&
          std::string_view("%{#").find(source_[at + 1]) != std::string_view::npos) {
        return at;
      }
    }
    return std::string_view::npos;
  }

  [[nodiscard]] Eval<void> lex_root() {
    const size_t tag = find_tag();
    if (tag == std::string_view::npos) {
      push(TokenKind::kData, source_.substr(at_));
      advance(source_.size() - at_);
      return {};
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    const size_t open_size = sign == '\0' ? 2 : 3;
    push_data(tag, sign, kind == '{');
    if (kind == '#') return lex_comment(open_size);
    if (kind == '%') {
      if (const size_t raw = raw_tag_size("raw", open_size); raw > 0) return lex_raw(raw);
    }
    push(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, source_.substr(at_, 2));
    advance(open_size);
    return lex_tag(kind == '{');
  }

  /// Size of the end mark of a block or comment at `at`, with the space it eats; 0 = none there.
  [[nodiscard]] size_t end_size(std::string_view mark, size_t at, bool trim) const {
    if (source_.compare(at, 1, "-") == 0 && starts_with(mark, at + 1)) {
      const size_t end = at + 1 + mark.size();
      return end + (source_.size() - end - strip_left(source_.substr(end), nullptr).size()) - at;
    }
    if (trim && source_.compare(at, 1, "+") == 0 && starts_with(mark, at + 1))
      return 1 + mark.size();
    if (!starts_with(mark, at)) return 0;
    const size_t end = at + mark.size();
    return mark.size() + (trim && end < source_.size() && source_[end] == '\n' ? 1 : 0);
  }

  [[nodiscard]] Eval<void> lex_comment(size_t open_size) {
    const size_t end = source_.find("#}", at_ + open_size);
    // The sign belongs to the end mark unless it is the one of the begin mark.
    if (end == std::string_view::npos) return raise("missing end of comment tag '#}}'");
    const bool has_sign =
        end > at_ + open_size && (source_[end - 1] == '-' || source_[end - 1] == '+');
    const size_t mark = has_sign ? end - 1 : end;
    advance(mark - at_);
    advance(end_size("#}", at_, true));
    return {};
  }

  /// Size of `{% raw %}` (or endraw) at the position, 0 if something else is there.
  [[nodiscard]] size_t raw_tag_size(std::string_view name, size_t open_size,
                                    size_t from = 0) const {
    const size_t begin = from == 0 ? at_ : from;
    const std::string_view inside = strip_left(source_.substr(begin + open_size), nullptr);
    if (inside.substr(0, name.size()) != name) return 0;
    const std::string_view rest = strip_left(inside.substr(name.size()), nullptr);
    const size_t mark = source_.size() - rest.size();
    const bool is_end = name == "endraw";
    if (!is_end && rest.substr(0, 1) == "+") return 0;
    // `{% raw %}` itself keeps the newline behind it.
    const size_t size = is_end || rest.substr(0, 1) == "-" ? end_size("%}", mark, true)
                                                           : (starts_with("%}", mark) ? 2 : 0);
    return size == 0 ? 0 : mark + size - begin;
  }

  [[nodiscard]] Eval<void> lex_raw(size_t raw_size) {
    advance(raw_size);
    for (size_t tag = source_.find("{%", at_); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      const size_t size = raw_tag_size("endraw", sign == '\0' ? 2 : 3, tag);
      if (size == 0) continue;
      push_data(tag, sign, false);
      advance(size);
      return {};
    }
    return raise("missing end of raw block '{{% endraw %}}'");
  }

  [[nodiscard]] Eval<void> lex_tag(bool is_variable) {
    const std::string_view mark = is_variable ? "}}" : "%}";
    std::vector<char> open;  // brackets
    while (true) {
      if (at_ >= source_.size())
        return raise("unexpected end of template inside a tag, '{}' expected", mark);
      if (open.empty()) {
        if (const size_t size = end_size(mark, at_, !is_variable); size > 0) {
          push(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, mark);
          advance(size);
          return {};
        }
      }
      const size_t before = at_;
      skip_space();
      if (at_ != before) continue;
      JINJA_CHECK(lex_token(open));
    }
  }

  [[nodiscard]] Eval<void> lex_token(std::vector<char>& open) {
    const char c = source_[at_];
    if (is_digit_char(c)) return lex_number();
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < source_.size() && is_name_char(source_[end])) ++end;
      push(TokenKind::kName, source_.substr(at_, end - at_));
      advance(end - at_);
      return {};
    }
    if (c == '"' || c == '\'') return lex_string(c);
    return lex_operator(open);
  }

  [[nodiscard]] Eval<void> lex_string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return raise("missing end of string {}", quote);
    JINJA_TRY(std::string text, decode_string_literal(source_.substr(at_ + 1, end - at_ - 1)));
    push(TokenKind::kString, text);
    advance(end + 1 - at_);
    return {};
  }

  [[nodiscard]] size_t digits_end(size_t at) const {
    while (at < source_.size() &&
           (is_digit_char(source_[at]) ||
            (source_[at] == '_' && at + 1 < source_.size() && is_digit_char(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  [[nodiscard]] Eval<void> lex_number() {
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char kind = static_cast<char>(source_[at_ + 1] | 0x20);
      if (kind == 'x') return lex_integer(16, 2);
      if (kind == 'o') return lex_integer(8, 2);
      if (kind == 'b') return lex_integer(2, 2);
    }
    size_t end = digits_end(at_);
    bool is_float = false;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot && end + 1 < source_.size() && source_[end] == '.' &&
        is_digit_char(source_[end + 1])) {
      is_float = true;
      end = digits_end(end + 1);
    }
    if (!after_dot && end < source_.size() && (source_[end] | 0x20) == 'e') {
      const size_t sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (end + 1 + sign < source_.size() && is_digit_char(source_[end + 1 + sign])) {
        is_float = true;
        end = digits_end(end + 1 + sign);
      }
    }
    if (!is_float) return lex_integer(10, 0);
    std::string text(source_.substr(at_, end - at_));
    std::erase(text, '_');
    push(TokenKind::kFloat, text);
    // Overflow gives infinity, as in Python. from_chars, since strtod depends on the locale.
    double real = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), real).ec ==
        std::errc::result_out_of_range) {
      real = text.find("e-") != std::string::npos ? 0.0 : HUGE_VAL;
    }
    tokens_.back().real = real;
    advance(end - at_);
    return {};
  }

  [[nodiscard]] Eval<void> lex_integer(int base, size_t prefix) {
    size_t end = at_ + prefix;
    while (end < source_.size() &&
           (is_digit_char(source_[end]) || source_[end] == '_' ||
            (base == 16 && (source_[end] | 0x20) >= 'a' && (source_[end] | 0x20) <= 'f'))) {
      ++end;
    }
    std::string digits(source_.substr(at_ + prefix, end - at_ - prefix));
    std::erase(digits, '_');
    push(TokenKind::kInteger, digits);
    const char* last = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), last, tokens_.back().integer, base);
    if (error != std::errc() || stop != last) {
      return raise("integer '{}' is malformed or does not fit 64 bits", digits.substr(0, 40));
    }
    advance(end - at_);
    return {};
  }

  [[nodiscard]] Eval<void> lex_operator(std::vector<char>& open) {
    for (const std::string_view op : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!has(op)) continue;
      push(TokenKind::kOperator, op);
      advance(op.size());
      return {};
    }
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      return raise("unexpected character '{}'", c);
    }
    if (c == '(' || c == '[' || c == '{') open.push_back(c);
    if (c == ')' || c == ']' || c == '}') {
      const char expected = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != expected) return raise("unexpected '{}'", c);
      open.pop_back();
    }
    push(TokenKind::kOperator, std::string_view(&source_[at_], 1));
    advance(1);
    return {};
  }

  std::string_view source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

Eval<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(normalize_newlines(source)).run();
}

}  // namespace baton::jinja
