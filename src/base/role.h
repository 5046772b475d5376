// What an engine does: prefill, decode or both.
#pragma once

#include <string_view>

namespace baton {

enum class Role { kPrefill, kDecode, kBoth };

/// "prefill", "decode", "both".
[[nodiscard]] std::string_view name(Role role);

}  // namespace baton
