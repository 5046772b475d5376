// The families of methods. Internal to src/jinja.
#pragma once

#include <string_view>

#include "jinja/objects.h"

namespace baton::jinja {

/// upper, isdigit, …: null if the family has no such method (methods_case.cc).
[[nodiscard]] MethodFunction find_case_method(std::string_view name);

}  // namespace baton::jinja
