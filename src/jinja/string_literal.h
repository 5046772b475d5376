// String literals of the template language: Python's escapes. Internal to src/jinja.
#pragma once

#include <string>
#include <string_view>

#include "jinja/failure.h"

namespace baton::jinja {

/// Decodes what stands between the quotes (valid UTF-8). Unknown escapes stay as they are.
[[nodiscard]] Eval<std::string> decode_string_literal(std::string_view body);

}  // namespace baton::jinja
