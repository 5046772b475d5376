// Filters that make text.
#include <unordered_map>

#include "jinja/filters.h"
#include "jinja/html.h"
#include "jinja/objects.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

constexpr size_t kMaxSeparator = 1000;  // bytes of an indent or separator, which is repeated

Eval<std::string> text_without_arguments(Interpreter& interpreter, const Value& input,
                                         CallArgs& args) {
  JINJA_CHECK(bind("filter", args, {}));
  return interpreter.text(input);
}

/// A filter that maps str(input) and takes no arguments; text marked safe stays so.
template <std::string (*kMap)(std::string_view)>
Eval<Value> map_text(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const std::string text, text_without_arguments(interpreter, input, args));
  return make_string(&interpreter.meter(), kMap(text),
                     input.is_string() && input.as_string()->markup);
}

Eval<Value> to_string(Interpreter& interpreter, const Value& input, CallArgs& args) {
  if (input.is_string()) return input;
  JINJA_TRY(std::string text, text_without_arguments(interpreter, input, args));
  return interpreter.string(std::move(text));
}

Eval<Value> safe(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(std::string text, text_without_arguments(interpreter, input, args));
  return make_string(&interpreter.meter(), std::move(text), true);
}

Eval<Value> escape(Interpreter& interpreter, const Value& input, CallArgs& args) {
  if (input.is_string() && input.as_string()->markup) return input;
  JINJA_TRY(const std::string text, text_without_arguments(interpreter, input, args));
  return make_string(&interpreter.meter(), escape_html(text), true);
}

Eval<Value> force_escape(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const std::string text, text_without_arguments(interpreter, input, args));
  return make_string(&interpreter.meter(), escape_html(text), true);
}

Eval<Value> trim(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("trim", args, {"chars"}));
  JINJA_TRY(const std::string text, interpreter.text(input));
  JINJA_TRY(const std::string_view chars, bound.text(0, ""));
  const std::string_view* const set = bound.given(0) ? &chars : nullptr;
  interpreter.meter().spend_bytes(text.size() * (chars.size() + 1) / 8);
  return interpreter.string(std::string(strip_right(strip_left(text, set), set)));
}

Eval<Value> replace(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("replace", args, {"old", "new", "count"}, 2));
  JINJA_TRY(const std::string text, interpreter.text(input));
  JINJA_TRY(const std::string from, interpreter.text(*bound[0]));
  JINJA_TRY(const std::string to, interpreter.text(*bound[1]));
  JINJA_TRY(const int64_t count, bound.integer(2, -1));
  JINJA_TRY(std::string replaced, replace_text(interpreter, text, {from, to, count}));
  return interpreter.string(std::move(replaced));
}

Eval<Value> center(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("center", args, {"width"}));
  JINJA_TRY(const std::string text, interpreter.text(input));
  JINJA_TRY(const int64_t width, bound.integer(0, 80));
  JINJA_TRY(std::string padded, pad(interpreter, text, {width, '^', " "}));
  return interpreter.string(std::move(padded));
}

Eval<Value> indent(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("indent", args, {"width", "first", "blank"}));
  if (!input.is_string()) return raise("indent needs a string, not '{}'", type_name(input));
  std::string indention;
  if (bound.given(0) && bound[0]->is_string()) {
    indention = bound[0]->text();
  } else {
    JINJA_TRY(const int64_t width, bound.integer(0, 4));
    if (width > static_cast<int64_t>(kMaxSeparator))
      return raise("indent is wider than {}", kMaxSeparator);
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const std::string text = input.text() + "\n";
  const std::vector<std::string_view> lines = split_lines(text, false);
  JINJA_CHECK(interpreter.check_size(lines.size(), indention.size() + sizeof(std::string_view)));
  std::string out = bound.flag(1) ? indention : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (bound.flag(2) || !lines[i].empty())) out += indention;
    out += lines[i];
  }
  return make_string(&interpreter.meter(), std::move(out), input.as_string()->markup);
}

Eval<Value> truncate(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound,
            bind("truncate", args, {"length", "killwords", "end", "leeway"}));
  JINJA_TRY(const std::string text, interpreter.text(input));
  JINJA_TRY(const int64_t length, bound.integer(0, 255));
  JINJA_TRY(const std::string_view end, bound.text(2, "..."));
  JINJA_TRY(const int64_t leeway, bound.integer(3, 5));
  const auto end_length = static_cast<int64_t>(count_points(end));
  if (length < end_length) return raise("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) return raise("expected leeway >= 0, got {}", leeway);
  const auto n_points = static_cast<int64_t>(count_points(text));
  if (n_points <= length || n_points - length <= leeway) return input;
  std::string kept = text.substr(0, byte_offset(text, static_cast<size_t>(length - end_length)));
  if (!bound.flag(1)) {
    const size_t space = kept.rfind(' ');
    if (space != std::string::npos) kept.resize(space);
  }
  return interpreter.string(kept + std::string(end));
}

Eval<Value> format(Interpreter& interpreter, const Value& input, CallArgs& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    return raise("can't handle positional and keyword arguments at the same time");
  }
  JINJA_TRY(const std::string text, interpreter.text(input));
  if (args.named.empty()) {
    return format_percent(interpreter, text,
                          interpreter.list(std::move(args.positional), ListKind::kTuple));
  }
  auto values = std::make_shared<Dict>(&interpreter.meter());
  for (auto& [name, value] : args.named) values->set(interpreter.string(name), std::move(value));
  return format_percent(interpreter, text, Value(std::move(values)));
}

Eval<Value> word_count(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const std::string text, text_without_arguments(interpreter, input, args));
  int64_t n = 0;
  bool inside = false;
  for (size_t byte = 0; byte < text.size();) {
    const char32_t point = next_point(text, byte);
    const bool is_word = is_alpha(point) || is_digit(point) || point == '_';
    if (is_word && !inside) ++n;
    inside = is_word;
  }
  return Value(n);
}

std::string quote_url(std::string_view text, bool in_query) {
  std::string out;
  for (const char c : text) {
    const bool is_safe = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                         std::string_view("_.-~").find(c) != std::string_view::npos ||
                         (c == '/' && !in_query);
    if (is_safe) {
      out += c;
    } else if (c == ' ' && in_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Eval<Value> url_encode(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_CHECK(bind("urlencode", args, {}));
  if (input.as_dict() == nullptr && input.as_list() == nullptr) {
    JINJA_TRY(const std::string text, interpreter.text(input));
    return interpreter.string(quote_url(text, false));
  }
  CallArgs none;
  JINJA_TRY(const Value pairs,
            input.as_dict() != nullptr ? interpreter.call_method(input, "items", none) : input);
  JINJA_TRY(const std::vector<Value> items, interpreter.iterate(pairs));
  std::string out;
  for (const Value& item : items) {
    JINJA_TRY(const std::vector<Value> pair, interpreter.iterate(item));
    if (pair.size() != 2) return raise("urlencode needs pairs");
    JINJA_TRY(const std::string key, interpreter.text(pair[0]));
    JINJA_TRY(const std::string value, interpreter.text(pair[1]));
    if (!out.empty()) out += '&';
    out += quote_url(key, true) + "=" + quote_url(value, true);
    JINJA_CHECK(interpreter.check_size(out.size(), 1));
  }
  return interpreter.string(std::move(out));
}

Eval<Value> to_json_filter(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound,
            bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound.flag(0);
  style.sort_keys = bound.flag(3);
  if (bound.given(1)) {
    style.item_separator = ",";
    if (bound[1]->is_string()) {
      style.indent = bound[1]->text();
    } else {
      JINJA_TRY(const int64_t width, bound.integer(1, 0));
      if (width > static_cast<int64_t>(kMaxSeparator))
        return raise("tojson indent is wider than {}", kMaxSeparator);
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (bound.given(2)) {
    JINJA_TRY(const std::vector<Value> pair, interpreter.iterate(*bound[2]));
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      return raise("tojson separators must be two strings");
    }
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  if (style.item_separator.size() + style.key_separator.size() + style.indent.value_or("").size() >
      kMaxSeparator) {
    return raise("tojson indent and separators are longer than {} bytes", kMaxSeparator);
  }
  JINJA_TRY(std::string json, to_json(input, style, interpreter.meter()));
  return interpreter.string(std::move(json));
}

Eval<Value> strip_tags(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const std::string text, text_without_arguments(interpreter, input, args));
  std::string plain;
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find('<', at);
    const size_t close = open == std::string::npos ? open : text.find('>', open);
    plain.append(text, at, close == std::string::npos ? std::string::npos : open - at);
    at = close == std::string::npos ? text.size() : close + 1;
  }
  std::string out;
  for (size_t byte = 0; byte < plain.size();) {
    const size_t begin = byte;
    if (is_space(next_point(plain, byte))) {
      if (!out.empty() && out.back() != ' ') out += ' ';
    } else {
      out += plain.substr(begin, byte - begin);
    }
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return interpreter.string(std::move(out));
}

}  // namespace

std::string title_words(std::string_view text) {
  std::string out;
  bool begins = true;
  size_t word = 0;
  const auto flush = [&](size_t end) {
    if (end > word) out += capitalize(text.substr(word, end - word));
    word = end;
  };
  for (size_t byte = 0; byte < text.size();) {
    const size_t begin = byte;
    const char32_t point = next_point(text, byte);
    const bool is_break = is_space(point) || point == '-' || point == '(' || point == '{' ||
                          point == '[' || point == '<';
    if (is_break != begins) flush(begin);
    begins = is_break;
  }
  flush(text.size());
  return out;
}

Eval<std::string> pad(Interpreter& interpreter, std::string_view text, const Padding& padding) {
  const auto n_points = static_cast<int64_t>(count_points(text));
  if (padding.width <= n_points) return std::string(text);
  const auto n_fill = static_cast<size_t>(padding.width - n_points);
  JINJA_CHECK(interpreter.check_size(n_fill, padding.fill.size()));
  // Python's str.center puts the odd one left if the width is odd.
  size_t left = padding.align == '<' ? 0 : n_fill;
  if (padding.align == '^') left = n_fill / 2 + (n_fill & static_cast<size_t>(padding.width) & 1);
  std::string out;
  for (size_t i = 0; i < left; ++i) out += padding.fill;
  out += text;
  for (size_t i = left; i < n_fill; ++i) out += padding.fill;
  return out;
}

Eval<std::string> replace_text(Interpreter& interpreter, std::string_view text,
                               const Replacement& replacement) {
  const auto [from, to, count] = replacement;
  interpreter.meter().spend_bytes(text.size());
  std::string out;
  int64_t n = 0;
  size_t at = 0;
  while (count < 0 || n < count) {
    // An empty `from` stands before every character and at the end.
    size_t hit = from.empty() ? at : text.find(from, at);
    if (hit == std::string_view::npos) break;
    out.append(text, at, hit - at);
    out += to;
    ++n;
    at = hit + from.size();
    JINJA_CHECK(interpreter.check_size(out.size(), 1));
    if (!from.empty()) continue;
    if (at >= text.size()) return out;
    const size_t begin = at;
    (void)next_point(text, at);
    out.append(text, begin, at - begin);
  }
  JINJA_CHECK(interpreter.spend(n / 16));
  out.append(text.substr(std::min(at, text.size())));
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t byte = 0; byte < text.size();) {
    const size_t at = byte;
    const char32_t point = next_point(text, byte);
    const bool is_end = (point >= 10 && point <= 13) || (point >= 28 && point <= 30) ||
                        point == 0x85 || point == 0x2028 || point == 0x2029;
    if (!is_end) continue;
    if (point == '\r' && byte < text.size() && text[byte] == '\n') ++byte;
    lines.push_back(text.substr(begin, (keep_ends ? byte : at) - begin));
    begin = byte;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

FilterFunction find_text_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kFilters = {
      {"string", to_string},
      {"safe", safe},
      {"escape", escape},
      {"e", escape},
      {"forceescape", force_escape},
      {"upper", map_text<to_upper>},
      {"lower", map_text<to_lower>},
      {"capitalize", map_text<capitalize>},
      {"title", map_text<title_words>},
      {"trim", trim},
      {"replace", replace},
      {"center", center},
      {"indent", indent},
      {"truncate", truncate},
      {"format", format},
      {"wordcount", word_count},
      {"urlencode", url_encode},
      {"tojson", to_json_filter},
      {"striptags", strip_tags},
  };
  const auto it = kFilters.find(name);
  return it != kFilters.end() ? it->second : nullptr;
}

}  // namespace baton::jinja
