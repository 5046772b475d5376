// Doubles in the JSON reports. (JsonWriter::number() is made for float log probabilities.)
#pragma once

#include <cmath>

#include "api/json_writer.h"
#include "base/result.h"

namespace baton::bench {

/// Six significant digits, or null for what is not finite.
inline api::JsonWriter& write_number(api::JsonWriter& json, double value) {
  return std::isfinite(value) ? json.raw(fmt::format("{:.6g}", value)) : json.null();
}

}  // namespace baton::bench
