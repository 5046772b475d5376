// Filters, tests and global functions by name. Internal to src/jinja.
#pragma once

#include <optional>
#include <string_view>

#include "jinja/value.h"

namespace baton::jinja {

using FilterFunction = Eval<Value> (*)(Interpreter&, const Value& input, CallArgs& args);
using TestFunction = Eval<bool> (*)(Interpreter&, const Value& input, CallArgs& args);

/// Null if there is no such filter or test.
[[nodiscard]] FilterFunction find_filter(std::string_view name);
[[nodiscard]] TestFunction find_test(std::string_view name);
/// range, dict, namespace, raise_exception, strftime_now, cycler, joiner.
[[nodiscard]] std::optional<Value> find_global(Meter& meter, std::string_view name);

}  // namespace baton::jinja
