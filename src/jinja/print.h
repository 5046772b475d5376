// Values as text: Python's str() and repr(), and json.dumps.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jinja/value.h"

namespace baton::jinja {

/// Python's repr of a float: the shortest digits that read back, with ".0" or an exponent.
[[nodiscard]] std::string float_repr(double value);
/// Python's repr of a str, quotes included.
[[nodiscard]] std::string string_repr(std::string_view text);
/// As `{{ value }}` prints it; strings as they are. Fails beyond the limit of value bytes.
[[nodiscard]] Eval<std::string> to_text(const Value& value, Meter& meter);
/// Python's repr: strings quoted.
[[nodiscard]] Eval<std::string> to_repr(const Value& value, Meter& meter);

/// The keyword arguments of json.dumps that tojson takes.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  ///< one level of it; set: one line for each element
  std::string item_separator = ", ";  ///< "," is the default with an indent
  std::string key_separator = ": ";
};

/// json.dumps(value, …): key order kept, floats as repr, no HTML escapes.
[[nodiscard]] Eval<std::string> to_json(const Value& value, const JsonStyle& style, Meter& meter);

}  // namespace baton::jinja
