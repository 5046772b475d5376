// str.format and the % operator of strings.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "jinja/filters.h"
#include "jinja/objects.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

constexpr int64_t kMaxPrecision = 1000;

/// [[fill]align][sign][#][0][width][,][.precision][type]
struct FormatSpec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  char grouping = '\0';
  int64_t width = 0;
  std::optional<int64_t> precision;
  char type = '\0';
};

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

int64_t parse_number(std::string_view text, size_t& at) {
  int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = std::min<int64_t>(value * 10 + (text[at++] - '0'), int64_t{1} << 40);
  }
  return value;
}

Eval<FormatSpec> parse_spec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  if (!text.empty()) {
    size_t after_fill = 0;
    (void)next_point(text, after_fill);
    if (after_fill < text.size() && is_align(text[after_fill])) {
      spec.fill = text.substr(0, after_fill);
      spec.align = text[after_fill];
      at = after_fill + 1;
    } else if (is_align(text[0])) {
      spec.align = text[at++];
    }
  }
  const auto has = [&](std::string_view set) {
    return at < text.size() && set.find(text[at]) != std::string_view::npos;
  };
  if (has("+- ")) spec.sign = text[at++];
  if (has("#")) spec.alternate = (++at, true);
  if (has("0")) spec.zero = (++at, true);
  spec.width = parse_number(text, at);
  if (has(",_")) spec.grouping = text[at++];
  if (has(".")) {
    if (++at >= text.size() || text[at] < '0' || text[at] > '9')
      return raise("format specifier missing precision");
    spec.precision = parse_number(text, at);
    if (*spec.precision > kMaxPrecision)
      return raise("format precision is larger than {}", kMaxPrecision);
  }
  if (has("bcdeEfFgGnosxX%")) spec.type = text[at++];
  if (at != text.size()) return raise("invalid format specifier '{}'", text.substr(0, 40));
  return spec;
}

std::string group_digits(std::string_view digits, char separator) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += separator;
    out += digits[i];
  }
  return out;
}

/// Digits of a number without its sign.
Eval<std::string> integer_digits(int64_t value, const FormatSpec& spec) {
  const uint64_t magnitude =
      value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  switch (spec.type) {
    case 'b':
      return (spec.alternate ? "0b" : "") + fmt::format("{:b}", magnitude);
    case 'o':
      return (spec.alternate ? "0o" : "") + fmt::format("{:o}", magnitude);
    case 'x':
      return (spec.alternate ? "0x" : "") + fmt::format("{:x}", magnitude);
    case 'X':
      return (spec.alternate ? "0X" : "") + fmt::format("{:X}", magnitude);
    case '\0':
    case 'd':
    case 'n':
      break;
    default:
      return raise("unknown format code '{}' for an integer", spec.type);
  }
  const std::string digits = std::to_string(magnitude);
  return spec.grouping != '\0' ? group_digits(digits, spec.grouping) : digits;
}

/// Python writes at least two digits of an exponent, as printf does.
Eval<std::string> float_digits(double value, const FormatSpec& spec) {
  const double magnitude = std::abs(value);
  if (std::isnan(value)) return std::string("nan");
  if (std::isinf(value)) return std::string("inf");
  const int precision = static_cast<int>(spec.precision.value_or(6));
  std::string digits;
  switch (spec.type) {
    case 'f':
    case 'F':
      digits = fmt::format("{:.{}f}", magnitude, precision);
      break;
    case 'e':
      digits = fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'E':
      digits = fmt::format("{:.{}E}", magnitude, precision);
      break;
    case 'g':
    case 'n':
      digits = fmt::format("{:.{}g}", magnitude, precision);
      break;
    case 'G':
      digits = fmt::format("{:.{}G}", magnitude, precision);
      break;
    case '%':
      digits = fmt::format("{:.{}f}%", magnitude * 100, precision);
      break;
    case '\0':
      digits =
          spec.precision ? fmt::format("{:.{}g}", magnitude, precision) : float_repr(magnitude);
      break;
    default:
      return raise("unknown format code '{}' for a float", spec.type);
  }
  if (spec.grouping == '\0') return digits;
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  return group_digits(std::string_view(digits).substr(0, end), spec.grouping) + digits.substr(end);
}

Eval<std::string> format_number(Interpreter& interpreter, const Value& value,
                                const FormatSpec& spec) {
  const bool as_float =
      value.as_float() != nullptr ||
      (spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos);
  const bool negative = as_float ? std::signbit(value.number()) : value.integer() < 0;
  JINJA_TRY(const std::string digits,
            as_float ? float_digits(value.number(), spec) : integer_digits(value.integer(), spec));
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const char align = spec.align != '\0' ? spec.align : spec.zero ? '=' : '>';
  const std::string fill = spec.align == '\0' && spec.zero ? "0" : spec.fill;
  if (align != '=') return pad(interpreter, sign + digits, {spec.width, align, fill});
  JINJA_TRY(const std::string padded,
            pad(interpreter, digits, {spec.width - static_cast<int64_t>(sign.size()), '>', fill}));
  return sign + padded;
}

Eval<std::string> format_value(Interpreter& interpreter, const Value& value,
                               std::string_view text) {
  if (text.empty()) return interpreter.text(value);
  JINJA_TRY(const FormatSpec spec, parse_spec(text));
  if (value.is_number() && (value.as_bool() == nullptr || spec.type != '\0'))
    return format_number(interpreter, value, spec);
  if (!value.is_string() && !value.is_number())
    return raise("unsupported format string passed to {}.__format__", type_name(value));
  if (spec.type != '\0' && spec.type != 's')
    return raise("unknown format code '{}' for a string", spec.type);
  JINJA_TRY(std::string shown, interpreter.text(value));
  if (spec.precision) shown.resize(byte_offset(shown, static_cast<size_t>(*spec.precision)));
  return pad(interpreter, shown,
             {spec.width, spec.align == '\0' || spec.align == '=' ? '<' : spec.align, spec.fill});
}

/// Walks a format string of str.format.
class Formatter {
 public:
  Formatter(Interpreter& interpreter, const CallArgs& args)
      : interpreter_(interpreter), args_(args) {}

  /// Replacement fields may be nested once, inside the specification.
  Eval<std::string> run(std::string_view format, int nesting) {
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const char c = format[at];
      if (c != '{' && c != '}') {
        const size_t next = std::min(format.find_first_of("{}", at), format.size());
        out += format.substr(at, next - at);
        at = next;
        continue;
      }
      if (at + 1 < format.size() && format[at + 1] == c) {
        out += c;
        at += 2;
        continue;
      }
      if (c == '}') return raise("Single '}}' encountered in format string");
      const size_t end = field_end(format, at + 1);
      if (end == std::string_view::npos) return raise("expected '}}' before end of string");
      JINJA_TRY(const std::string text, field(format.substr(at + 1, end - at - 1), nesting));
      JINJA_CHECK(interpreter_.check_size(out.size() + text.size(), 1));
      JINJA_CHECK(interpreter_.spend(1));
      out += text;
      at = end + 1;
    }
    return out;
  }

 private:
  static size_t field_end(std::string_view format, size_t at) {
    int depth = 1;
    for (; at < format.size(); ++at) {
      if (format[at] == '{') ++depth;
      if (format[at] == '}' && --depth == 0) return at;
    }
    return std::string_view::npos;
  }

  Eval<std::string> field(std::string_view text, int nesting) {
    if (nesting > 1) return raise("Max string recursion exceeded");
    const size_t colon = text.find(':');
    std::string_view name = text.substr(0, colon);
    char conversion = '\0';
    if (const size_t mark = name.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != name.size())
        return raise("expected one character after '!' in format string");
      conversion = name[mark + 1];
      name = name.substr(0, mark);
    }
    JINJA_TRY(Value value, lookup(name));
    if (conversion == 'r' || conversion == 'a') {
      JINJA_TRY(std::string shown, to_repr(value, interpreter_.meter()));
      value = interpreter_.string(std::move(shown));
    } else if (conversion == 's') {
      JINJA_TRY(std::string shown, interpreter_.text(value));
      value = interpreter_.string(std::move(shown));
    } else if (conversion != '\0') {
      return raise("unknown conversion specifier '{}'", conversion);
    }
    std::string spec;
    if (colon != std::string_view::npos) {
      JINJA_TRY(spec, run(text.substr(colon + 1), nesting + 1));
    }
    return format_value(interpreter_, value, spec);
  }

  /// name or index, then .attribute and [item].
  Eval<Value> lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    JINJA_TRY(Value value, first(name.substr(0, end)));
    for (size_t at = end; at < name.size();) {
      const bool is_item = name[at] == '[';
      const size_t stop =
          std::min(is_item ? name.find(']', at) : name.find_first_of(".[", at + 1), name.size());
      const std::string_view part = name.substr(at + 1, stop - at - 1);
      if (part.empty() || (is_item && stop == name.size()))
        return raise("Empty attribute in format string");
      int64_t index = 0;
      const auto [last, error] = std::from_chars(part.data(), part.data() + part.size(), index);
      const bool is_index = is_item && error == std::errc() && last == part.data() + part.size();
      const Value key = is_index ? Value(index) : interpreter_.string(std::string(part));
      JINJA_TRY(value,
                is_item ? interpreter_.item(value, key) : interpreter_.attribute(value, part));
      at = is_item ? stop + 1 : stop;
    }
    return value;
  }

  Eval<Value> first(std::string_view name) {
    int64_t index = 0;
    const auto [last, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_index =
        !name.empty() && error == std::errc() && last == name.data() + name.size() && index >= 0;
    if (name.empty()) {
      if (next_ < 0)
        return raise("cannot switch from manual field specification to automatic field numbering");
      index = next_++;
    } else if (is_index) {
      if (next_ > 0)
        return raise("cannot switch from automatic field numbering to manual field specification");
      next_ = -1;
    } else {
      for (const auto& [key, value] : args_.named) {
        if (key == name) return value;
      }
      return raise("format key '{}' is missing", name);
    }
    if (index >= static_cast<int64_t>(args_.positional.size())) {
      return raise("Replacement index {} out of range for positional args tuple", index);
    }
    return args_.positional[static_cast<size_t>(index)];
  }

  Interpreter& interpreter_;
  const CallArgs& args_;
  int64_t next_ = 0;  ///< of automatic numbering; -1 once numbers were given
};

/// Walks a format string of the % operator.
class PercentFormatter {
 public:
  PercentFormatter(Interpreter& interpreter, const Value& arguments)
      : interpreter_(interpreter),
        arguments_(arguments),
        is_tuple_(arguments.is_list(ListKind::kTuple)) {}

  Eval<std::string> run(std::string_view format) {
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const size_t mark = std::min(format.find('%', at), format.size());
      out += format.substr(at, mark - at);
      if (mark == format.size()) break;
      at = mark + 1;
      JINJA_TRY(const std::string text, directive(format, at));
      JINJA_CHECK(interpreter_.check_size(out.size() + text.size(), 1));
      JINJA_CHECK(interpreter_.spend(1));
      out += text;
    }
    const size_t n = is_tuple_ ? arguments_.as_list()->items.size() : 1;
    if (used_ < n && !by_name_ && arguments_.as_dict() == nullptr) {
      return raise("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  /// One directive, after its %.
  Eval<std::string> directive(std::string_view format, size_t& at) {
    std::optional<Value> named;
    if (at < format.size() && format[at] == '(') {
      const size_t end = format.find(')', at);
      if (end == std::string_view::npos) return raise("incomplete format key");
      JINJA_TRY(named, by_key(format.substr(at + 1, end - at - 1)));
      at = end + 1;
    }
    FormatSpec spec;
    bool left = false;
    for (;
         at < format.size() && std::string_view("-+ #0").find(format[at]) != std::string_view::npos;
         ++at) {
      switch (format[at]) {
        case '-':
          left = true;
          break;
        case '0':
          spec.zero = true;
          break;
        case '#':
          spec.alternate = true;
          break;
        default:
          spec.sign = format[at];
      }
    }
    spec.width = parse_number(format, at);
    if (at < format.size() && format[at] == '.') spec.precision = parse_number(format, ++at);
    if (spec.precision.value_or(0) > kMaxPrecision)
      return raise("format precision is larger than {}", kMaxPrecision);
    if (at >= format.size()) return raise("incomplete format");
    const char type = format[at++];
    if (type == '%') return std::string("%");
    if (left) spec.align = '<';
    Value value;
    if (named) {
      value = *named;
    } else {
      JINJA_TRY(value, next());
    }
    return convert(value, type, spec);
  }

  Eval<std::string> convert(const Value& value, char type, FormatSpec& spec) {
    if (type == 's' || type == 'r' || type == 'a') {
      JINJA_TRY(std::string text,
                type == 's' ? interpreter_.text(value) : to_repr(value, interpreter_.meter()));
      if (spec.precision) text.resize(byte_offset(text, static_cast<size_t>(*spec.precision)));
      return pad(interpreter_, text, {spec.width, spec.align == '<' ? '<' : '>', " "});
    }
    if (std::string_view("diuoxXeEfFgG").find(type) == std::string_view::npos) {
      return raise("unsupported format character '{}'",
                   is_ascii({&type, 1}) ? std::string(1, type) : "?");
    }
    if (value.is_undefined()) return raise("{}", value.as_undefined()->hint);
    if (!value.is_number())
      return raise("%{} format: a real number is required, not {}", type, type_name(value));
    const bool is_integer = std::string_view("diuoxX").find(type) != std::string_view::npos;
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if (!is_integer || value.is_integral()) return format_number(interpreter_, value, spec);
    const double real = value.number();
    if (!(std::abs(real) < 9e18)) return raise("cannot convert float to a 64-bit integer");
    return format_number(interpreter_, Value(static_cast<int64_t>(real)), spec);
  }

  Eval<std::optional<Value>> by_key(std::string_view key) {
    by_name_ = true;
    const Dict* dict = arguments_.as_dict();
    if (dict == nullptr) return raise("format requires a mapping");
    const Value* value = dict->find(key);
    if (value == nullptr) return raise("format key '{}' is missing", key);
    return std::optional(*value);
  }

  Eval<Value> next() {
    const size_t i = used_++;
    if (!is_tuple_)
      return i == 0 ? Eval<Value>(arguments_) : raise("not enough arguments for format string");
    const auto& items = arguments_.as_list()->items;
    if (i >= items.size()) return raise("not enough arguments for format string");
    return items[i];
  }

  Interpreter& interpreter_;
  const Value& arguments_;
  const bool is_tuple_;
  bool by_name_ = false;
  size_t used_ = 0;
};

}  // namespace

Eval<Value> format_method(Interpreter& interpreter, const Value& self, CallArgs& args) {
  JINJA_TRY(std::string text, Formatter(interpreter, args).run(self.text(), 0));
  return interpreter.string(std::move(text));
}

Eval<Value> format_percent(Interpreter& interpreter, const std::string& format,
                           const Value& arguments) {
  JINJA_TRY(std::string text, PercentFormatter(interpreter, arguments).run(format));
  return interpreter.string(std::move(text));
}

}  // namespace baton::jinja
