// Filters about numbers and single values, and the lookup of all filters.
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "jinja/filters.h"
#include "jinja/objects.h"
#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

/// Python's float(str): white space around it, underscores between digits, inf and nan.
std::optional<double> parse_float(std::string_view text) {
  text = strip_right(strip_left(text, nullptr), nullptr);
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_between = i > 0 && i + 1 < text.size() &&
                            is_digit(static_cast<unsigned char>(text[i - 1])) &&
                            is_digit(static_cast<unsigned char>(text[i + 1]));
    if (text[i] != '_' || !is_between) plain += text[i];
  }
  std::string_view digits = plain;
  if (digits.substr(0, 1) == "+") digits.remove_prefix(1);
  if (digits.substr(0, 1) == "-" && plain[0] == '+') return std::nullopt;
  if (digits.find('(') != std::string_view::npos) return std::nullopt;  // from_chars knows nan(…)
  double value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (stop != end || digits.empty()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    return digits.find("e-") != std::string_view::npos ||
                   digits.find("E-") != std::string_view::npos
               ? 0.0
               : HUGE_VAL;
  }
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

enum class Parsed { kOk, kBad, kOverflow };

/// Python's int(str, base).
Parsed parse_int(std::string_view text, int base, int64_t& value) {
  text = strip_right(strip_left(text, nullptr), nullptr);
  const bool negative = text.substr(0, 1) == "-";
  if (negative || text.substr(0, 1) == "+") text.remove_prefix(1);
  const auto has_prefix = [&](char letter) {
    return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter;
  };
  for (const auto& [letter, of_base] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if (!has_prefix(letter) || (base != of_base && base != 0)) continue;
    text.remove_prefix(2);
    base = of_base;
    break;
  }
  if (base == 0) base = 10;
  std::string digits = negative ? "-" : "";
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && i + 1 < text.size() && text[i + 1] != '_') continue;
    digits += text[i];
  }
  if (text.empty() || text[0] == '-' || text[0] == '+') return Parsed::kBad;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, base);
  if (stop != end) return Parsed::kBad;
  if (error == std::errc::result_out_of_range) return Parsed::kOverflow;
  return error == std::errc() ? Parsed::kOk : Parsed::kBad;
}

/// int(float), or nothing for nan, inf and what doesn't fit.
Eval<std::optional<int64_t>> truncated(double value) {
  if (std::isnan(value) || std::isinf(value)) return std::optional<int64_t>();
  if (std::abs(value) >= 9223372036854775808.0)
    return raise("integer overflow: the number does not fit 64 bits");
  return std::optional(static_cast<int64_t>(value));
}

Eval<Value> to_int(Interpreter&, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("int", args, {"default", "base"}));
  JINJA_TRY(const int64_t base, bound.integer(1, 10));
  const Value otherwise = bound[0] != nullptr ? *bound[0] : Value(int64_t{0});
  if (input.is_undefined()) return raise("{}", input.as_undefined()->hint);
  std::optional<double> real;
  if (input.is_integral()) return Value(input.integer());
  if (const double* number = input.as_float()) real = *number;
  if (input.is_string()) {
    if (base != 0 && (base < 2 || base > 36)) return otherwise;
    int64_t value = 0;
    switch (parse_int(input.text(), static_cast<int>(base), value)) {
      case Parsed::kOk:
        return Value(value);
      case Parsed::kOverflow:
        return raise("integer overflow: the number does not fit 64 bits");
      case Parsed::kBad:
        real = parse_float(input.text());
    }
  }
  if (!real) return otherwise;
  JINJA_TRY(const std::optional<int64_t> value, truncated(*real));
  return value ? Value(*value) : otherwise;
}

Eval<Value> to_float(Interpreter&, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("float", args, {"default"}));
  if (input.is_undefined()) return raise("{}", input.as_undefined()->hint);
  if (input.is_number()) return Value(input.number());
  const std::optional<double> value = input.is_string() ? parse_float(input.text()) : std::nullopt;
  if (value) return Value(*value);
  return bound[0] != nullptr ? *bound[0] : Value(0.0);
}

Eval<Value> absolute(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_CHECK(bind("abs", args, {}));
  if (input.is_undefined()) return raise("{}", input.as_undefined()->hint);
  if (!input.is_number()) return raise("bad operand type for abs(): '{}'", type_name(input));
  if (const double* number = input.as_float()) return Value(std::abs(*number));
  return input.integer() < 0 ? interpreter.negate(input) : Value(input.integer());
}

Eval<Value> round_number(Interpreter&, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("round", args, {"precision", "method"}));
  JINJA_TRY(const int64_t precision, bound.integer(0, 0));
  JINJA_TRY(const std::string_view method, bound.text(1, "common"));
  if (method != "common" && method != "ceil" && method != "floor")
    return raise("method must be common, ceil or floor");
  if (input.is_undefined()) return raise("{}", input.as_undefined()->hint);
  if (!input.is_number()) return raise("type {} doesn't define __round__ method", type_name(input));
  if (precision > 300 || precision < -300) return raise("precision must be between -300 and 300");
  if (method == "common" && input.is_integral() && precision >= 0) return Value(input.integer());
  const double value = input.number();
  if (!std::isfinite(value)) return input;
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(value * scale) / scale);
  if (method == "floor") return Value(std::floor(value * scale) / scale);
  double rounded = 0;
  if (precision >= 0) {
    // Correctly rounded decimal digits, as Python has it (half to even of the exact value).
    const std::string digits = fmt::format("{:.{}f}", value, static_cast<int>(precision));
    std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
  } else {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    rounded = std::nearbyint(value / unit) * unit;
  }
  return input.is_integral() ? Value(static_cast<int64_t>(rounded)) : Value(rounded);
}

Eval<Value> default_value(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("default", args, {"default_value", "boolean"}));
  if (!input.is_undefined() && !(bound.flag(1) && !truthy(input))) return input;
  return bound[0] != nullptr ? *bound[0] : interpreter.string("");
}

Eval<Value> attr(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("attr", args, {"name"}, 1));
  JINJA_TRY(const std::string_view name, bound.text(0, ""));
  if (const Dict* dict = input.as_dict(); dict != nullptr && find_method(input, name) == nullptr) {
    return interpreter.undefined(fmt::format("'dict object' has no attribute '{}'", name));
  }
  return interpreter.attribute(input, name);
}

Eval<Value> file_size(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("filesizeformat", args, {"binary"}));
  CallArgs none;
  JINJA_TRY(const Value number, to_float(interpreter, input, none));
  const double bytes = number.number();
  const bool binary = bound.flag(0);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return interpreter.string("1 Byte");
  if (bytes < base) return interpreter.string(fmt::format("{:.0f} Bytes", std::trunc(bytes)));
  constexpr std::string_view kUnits = "kMGTPEZY";
  double unit = base * base;
  size_t i = 0;
  for (; i + 1 < kUnits.size() && bytes >= unit; ++i) unit *= base;
  const std::string prefix = binary && i == 0 ? "K" : std::string(1, kUnits[i]);
  return interpreter.string(
      fmt::format("{:.1f} {}{}B", base * bytes / unit, prefix, binary ? "i" : ""));
}

}  // namespace

FilterFunction find_number_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kFilters = {
      {"int", to_int},         {"float", to_float},           {"abs", absolute},
      {"round", round_number}, {"default", default_value},    {"d", default_value},
      {"attr", attr},          {"filesizeformat", file_size},
  };
  const auto it = kFilters.find(name);
  return it != kFilters.end() ? it->second : nullptr;
}

FilterFunction find_filter(std::string_view name) {
  for (const auto find :
       {find_text_filter, find_number_filter, find_sequence_filter, find_select_filter}) {
    if (const FilterFunction filter = find(name)) return filter;
  }
  return nullptr;
}

}  // namespace baton::jinja
