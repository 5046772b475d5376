// Python's str methods about case and classes of characters.
#include <string>
#include <unordered_map>

#include "jinja/arguments.h"
#include "jinja/methods.h"
#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

/// A method without arguments that maps the text.
template <std::string (*kMap)(std::string_view)>
Eval<Value> map_text(Interpreter& interpreter, const Value& self, CallArgs& args) {
  JINJA_CHECK(bind("the method", args, {}));
  return interpreter.string(kMap(self.text()));
}

/// A method without arguments that holds if the text is not empty and all characters are of a
/// class.
template <bool (*kHolds)(char32_t)>
Eval<Value> all_of(Interpreter&, const Value& self, CallArgs& args) {
  JINJA_CHECK(bind("the method", args, {}));
  const std::string& text = self.text();
  for (size_t byte = 0; byte < text.size();) {
    if (!kHolds(next_point(text, byte))) return Value(false);
  }
  return Value(!text.empty());
}

/// isupper, islower: cased characters exist and are all of that case.
template <bool kUpper>
Eval<Value> has_case(Interpreter&, const Value& self, CallArgs& args) {
  JINJA_CHECK(bind("the method", args, {}));
  const std::string& text = self.text();
  bool found = false;
  for (size_t byte = 0; byte < text.size();) {
    const char32_t point = next_point(text, byte);
    if (kUpper ? is_lower(point) : is_upper(point)) return Value(false);
    found = found || (kUpper ? is_upper(point) : is_lower(point));
  }
  return Value(found);
}

Eval<Value> is_title(Interpreter&, const Value& self, CallArgs& args) {
  JINJA_CHECK(bind("istitle", args, {}));
  const std::string& text = self.text();
  bool found = false;
  bool inside = false;
  for (size_t byte = 0; byte < text.size();) {
    const char32_t point = next_point(text, byte);
    if (inside ? is_upper(point) : is_lower(point)) return Value(false);
    inside = is_upper(point) || is_lower(point);
    found = found || inside;
  }
  return Value(found);
}

Eval<Value> is_ascii_text(Interpreter&, const Value& self, CallArgs& args) {
  JINJA_CHECK(bind("isascii", args, {}));
  return Value(is_ascii(self.text()));
}

bool is_alnum(char32_t point) { return is_alpha(point) || is_digit(point); }

Eval<Value> is_identifier(Interpreter&, const Value& self, CallArgs& args) {
  JINJA_CHECK(bind("isidentifier", args, {}));
  const std::string& text = self.text();
  for (size_t byte = 0; byte < text.size();) {
    const bool is_first = byte == 0;
    const char32_t point = next_point(text, byte);
    if (!is_alpha(point) && point != '_' && (is_first || !is_digit(point))) return Value(false);
  }
  return Value(!text.empty());
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t byte = 0; byte < text.size();) {
    const size_t begin = byte;
    const char32_t point = next_point(text, byte);
    const std::string_view one = text.substr(begin, byte - begin);
    out += is_upper(point) ? to_lower(one) : to_upper(one);
  }
  return out;
}

/// str.title: every run of letters is a word.
std::string title(std::string_view text) {
  std::string out;
  size_t word = 0;
  bool inside = false;
  for (size_t byte = 0; byte < text.size();) {
    const size_t begin = byte;
    const bool is_letter = is_alpha(next_point(text, byte));
    if (is_letter && !inside) word = begin;
    if (!is_letter) {
      if (inside) out += capitalize(text.substr(word, begin - word));
      out += text.substr(begin, byte - begin);
    }
    inside = is_letter;
  }
  if (inside) out += capitalize(text.substr(word));
  return out;
}

// Full case folding differs from lower case in few characters; ß is the one in common use.
std::string case_fold(std::string_view text) {
  std::string out;
  for (size_t byte = 0; byte < text.size();) {
    const size_t begin = byte;
    const char32_t point = next_point(text, byte);
    out += point == 0xDF ? "ss" : point == 0x3C2 ? "σ" : to_lower(text.substr(begin, byte - begin));
  }
  return out;
}

}  // namespace

MethodFunction find_case_method(std::string_view name) {
  static const std::unordered_map<std::string_view, MethodFunction> kMethods = {
      {"upper", map_text<to_upper>},
      {"lower", map_text<to_lower>},
      {"casefold", map_text<case_fold>},
      {"capitalize", map_text<capitalize>},
      {"title", map_text<title>},
      {"swapcase", map_text<swap_case>},
      {"isupper", has_case<true>},
      {"islower", has_case<false>},
      {"istitle", is_title},
      {"isalpha", all_of<is_alpha>},
      {"isalnum", all_of<is_alnum>},
      {"isdigit", all_of<is_digit>},
      {"isdecimal", all_of<is_digit>},
      {"isnumeric", all_of<is_digit>},
      {"isspace", all_of<is_space>},
      {"isprintable", all_of<is_printable>},
      {"isascii", is_ascii_text},
      {"isidentifier", is_identifier},
  };
  const auto it = kMethods.find(name);
  return it != kMethods.end() ? it->second : nullptr;
}

}  // namespace baton::jinja
