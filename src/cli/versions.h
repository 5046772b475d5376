// What the engines of a router are, asked once when they are there.
#pragma once

#include <string>
#include <vector>

#include "cli/version_json.h"
#include "router/backend.h"

namespace baton::cli {

/// GET /version of each engine that answers soon; waits for all of them. The others are left out.
[[nodiscard]] std::vector<EngineVersion> ask_versions(
    const std::vector<router::EngineAddress>& engines, const std::string& internal_key);

}  // namespace baton::cli
