// nlohmann::ordered_json → Value. Ordered, since templates show keys in the order of the request.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "jinja/value.h"

namespace baton::jinja {

/// kInvalidArgument: an integer beyond 64 bits, nesting beyond `max_nesting`, a string that is not
/// UTF-8. The result has no meter: the caller bounds the size of its JSON.
[[nodiscard]] Result<Value> from_json(const nlohmann::ordered_json& json,
                                      int max_nesting = Limits{}.max_nesting);

}  // namespace baton::jinja
