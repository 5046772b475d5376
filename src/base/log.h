// Logging through spdlog: text or JSON lines on stderr. The one singleton of the project.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

#include "base/result.h"

namespace baton {

/// Sets level (trace|debug|info|warn|error|off) and format (text|json) of the default logger.
/// `name`, if there is one, says in each line which process it is of: "engine 1 (decode)".
[[nodiscard]] Status init_logging(std::string_view level, std::string_view format,
                                  std::string_view name = {});

}  // namespace baton
