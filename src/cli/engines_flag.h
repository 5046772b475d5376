// --engines: how many engines of which role.
#pragma once

#include <string_view>

#include "base/result.h"

namespace baton::cli {

struct EngineCounts {
  int prefill = 0;
  int decode = 0;
  int both = 0;
};

/// Parses "1P1D", "2P1D1B", …: pairs of a count and P, D or B, each letter at most once. Errors
/// name the flag and the value.
[[nodiscard]] Result<EngineCounts> parse_engines(std::string_view text);

}  // namespace baton::cli
