#include "jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

void append_hex_escape(std::string& out, char32_t point) {
  if (point < 0x100) {
    out += fmt::format("\\x{:02x}", static_cast<uint32_t>(point));
  } else if (point < 0x10000) {
    out += fmt::format("\\u{:04x}", static_cast<uint32_t>(point));
  } else {
    out += fmt::format("\\U{:08x}", static_cast<uint32_t>(point));
  }
}

/// Writes repr() of nested values; the size limit also bounds the work on values with shared parts.
class ReprWriter {
 public:
  explicit ReprWriter(Meter& meter) : meter_(meter) {}

  [[nodiscard]] Eval<std::string> write(const Value& value) {
    append(value);
    if (!meter_.fits(out_.size())) return raise("the text of a value is too long");
    return std::move(out_);
  }

 private:
  void append(const Value& value) {
    meter_.spend(1);
    // Namespaces may contain themselves, so depth is counted here too.
    if (meter_.overrun() || ++depth_ > 2 * meter_.limits().max_nesting) {
      meter_.mark_too_deep();
      return;
    }
    if (out_.size() > meter_.limits().max_value_bytes) meter_.mark_too_big();
    append_any(value);
    --depth_;
  }

  void append_any(const Value& value) {
    if (value.is_none()) {
      out_ += "None";
    } else if (const bool* flag = value.as_bool()) {
      out_ += *flag ? "True" : "False";
    } else if (const int64_t* number = value.as_int()) {
      out_ += std::to_string(*number);
    } else if (const double* real = value.as_float()) {
      out_ += float_repr(*real);
    } else if (value.is_undefined()) {
      out_ += "Undefined";
    } else if (const String* string = value.as_string()) {
      const std::string quoted = string_repr(string->text);
      out_ += string->markup ? "Markup(" + quoted + ")" : quoted;
    } else if (const List* list = value.as_list()) {
      append_list(*list);
    } else if (const Dict* dict = value.as_dict()) {
      append_dict(*dict);
    } else {
      out_ += value.as_object()->describe();
    }
  }

  void append_items(const List& list) {
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      append(list.items[i]);
      if (meter_.overrun()) return;
    }
  }

  void append_list(const List& list) {
    switch (list.kind) {
      case ListKind::kList:
        out_ += '[';
        append_items(list);
        out_ += ']';
        return;
      case ListKind::kTuple:
      case ListKind::kGroup:
        out_ += '(';
        append_items(list);
        out_ += list.items.size() == 1 ? ",)" : ")";
        return;
      case ListKind::kRange:
        append_range(list);
        return;
      case ListKind::kGenerator:
        out_ += "<generator object>";
        return;
      default:
        out_ += fmt::format("{}([", type_name_of(list.kind));
        append_items(list);
        out_ += "])";
        return;
    }
  }

  static std::string_view type_name_of(ListKind kind) {
    return kind == ListKind::kKeys     ? "dict_keys"
           : kind == ListKind::kValues ? "dict_values"
                                       : "dict_items";
  }

  void append_range(const List& list) {
    if (list.items.empty()) {
      out_ += "range(0, 0)";
      return;
    }
    const int64_t first = list.items.front().integer();
    const int64_t step = list.items.size() > 1 ? list.items[1].integer() - first : 1;
    const int64_t stop = list.items.back().integer() + (step > 0 ? 1 : -1);
    out_ += step == 1 ? fmt::format("range({}, {})", first, stop)
                      : fmt::format("range({}, {}, {})", first, stop, step);
  }

  void append_dict(const Dict& dict) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : dict.entries) {
      if (!first) out_ += ", ";
      first = false;
      append(key);
      out_ += ": ";
      append(value);
      if (meter_.overrun()) return;
    }
    out_ += '}';
  }

  Meter& meter_;
  std::string out_;
  int depth_ = 0;
};

/// json.dumps.
class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Meter& meter) : style_(style), meter_(meter) {}

  [[nodiscard]] Eval<std::string> write(const Value& value) {
    JINJA_CHECK(append(value));
    if (!meter_.fits(out_.size())) return raise("the JSON text of a value is too long");
    return std::move(out_);
  }

 private:
  [[nodiscard]] Eval<void> append(const Value& value) {
    meter_.spend(1);
    if (out_.size() > meter_.limits().max_value_bytes) meter_.mark_too_big();
    if (meter_.overrun()) return raise("the JSON text of a value is too long");
    if (value.is_string()) {
      append_string(value.text());
    } else if (value.is_none() || value.is_number()) {
      out_ += scalar(value);
    } else if (const Dict* dict = value.as_dict()) {
      return append_dict(*dict);
    } else if (value.as_list() != nullptr && value.as_list()->kind < ListKind::kRange) {
      return append_list(*value.as_list());
    } else {
      return raise("Object of type {} is not JSON serializable", type_name(value));
    }
    return {};
  }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.as_bool()) return *flag ? "true" : "false";
    if (const int64_t* number = value.as_int()) return std::to_string(*number);
    const double real = *value.as_float();
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real > 0 ? "Infinity" : "-Infinity";
    return float_repr(real);
  }

  void append_string(std::string_view text) {
    out_ += '"';
    for (size_t byte = 0; byte < text.size();) {
      const size_t begin = byte;
      const char32_t point = next_point(text, byte);
      switch (point) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\b':
          out_ += "\\b";
          break;
        case '\f':
          out_ += "\\f";
          break;
        default:
          if (point < 0x20 || (style_.ensure_ascii && point > 0x7E)) {
            append_unicode_escape(point);
          } else {
            out_ += text.substr(begin, byte - begin);
          }
      }
    }
    out_ += '"';
  }

  void append_unicode_escape(char32_t point) {
    const auto unit = [this](uint32_t value) { out_ += fmt::format("\\u{:04x}", value); };
    if (point == 0x7F) {
      out_ += '\x7F';
    } else if (point < 0x10000) {
      unit(static_cast<uint32_t>(point));
    } else {
      const auto rest = static_cast<uint32_t>(point) - 0x10000;
      unit(0xD800 + (rest >> 10));
      unit(0xDC00 + (rest & 0x3FF));
    }
  }

  void new_line() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  [[nodiscard]] Eval<void> append_list(const List& list) {
    if (list.items.empty()) {
      out_ += "[]";
      return {};
    }
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line();
      JINJA_CHECK(append(list.items[i]));
    }
    --level_;
    new_line();
    out_ += ']';
    return {};
  }

  [[nodiscard]] Eval<void> append_dict(const Dict& dict) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return {};
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) JINJA_CHECK(sort(entries));
    out_ += '{';
    ++level_;
    bool first = true;
    for (const auto* entry : entries) {
      if (!first) out_ += style_.item_separator;
      first = false;
      new_line();
      JINJA_CHECK(append_key(entry->first));
      out_ += style_.key_separator;
      JINJA_CHECK(append(entry->second));
    }
    --level_;
    new_line();
    out_ += '}';
    return {};
  }

  [[nodiscard]] Eval<void> sort(std::vector<const std::pair<Value, Value>*>& entries) {
    std::optional<Failure> failure;
    std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
      auto less = less_than(a->first, b->first, &meter_);
      if (!less && !failure) failure = std::move(less.error());
      return less && *less;
    });
    if (failure) return tl::unexpected(std::move(*failure));
    return {};
  }

  [[nodiscard]] Eval<void> append_key(const Value& key) {
    if (key.is_string()) {
      append_string(key.text());
    } else if (key.is_none() || key.is_number()) {
      out_ += '"' + scalar(key) + '"';
    } else {
      return raise("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
    return {};
  }

  const JsonStyle& style_;
  Meter& meter_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const std::string sign = text[0] == '-' ? "-" : "";
  int exponent = 0;
  const size_t exponent_at = e + 1 + (text[e + 1] == '+' ? 1 : 0);
  std::from_chars(text.data() + exponent_at, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    std::string mantissa = digits.substr(0, 1);
    if (digits.size() > 1) mantissa += "." + digits.substr(1);
    return fmt::format("{}{}e{}{:02}", sign, mantissa, exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto n_integral = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= n_integral) {
    return sign + digits + std::string(n_integral - digits.size(), '0') + ".0";
  }
  return sign + digits.substr(0, n_integral) + "." + digits.substr(n_integral);
}

std::string string_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t byte = 0; byte < text.size();) {
    const size_t begin = byte;
    const char32_t point = next_point(text, byte);
    switch (point) {
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\\':
        out += "\\\\";
        break;
      default:
        if (point == static_cast<char32_t>(quote)) {
          out += '\\';
          out += quote;
        } else if (is_printable(point)) {
          out += text.substr(begin, byte - begin);
        } else {
          append_hex_escape(out, point);
        }
    }
  }
  return out + quote;
}

Eval<std::string> to_text(const Value& value, Meter& meter) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return std::string();
  return to_repr(value, meter);
}

Eval<std::string> to_repr(const Value& value, Meter& meter) {
  return ReprWriter(meter).write(value);
}

Eval<std::string> to_json(const Value& value, const JsonStyle& style, Meter& meter) {
  return JsonWriter(style, meter).write(value);
}

}  // namespace baton::jinja
