// The one JSON line an engine process writes to its ready pipe: {"url":"http://…","pid":N} when it
// serves, {"error":"…","code":"…"} when it can't.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::supervisor {

struct Ready {
  std::string url;
  int pid = 0;
};

/// With the newline.
[[nodiscard]] std::string ready_line(const Ready& ready);
[[nodiscard]] std::string failed_line(const Error& error);

/// What the line says: the engine is ready, or the engine's own error (kInternal for a code that is
/// unknown, kCorrupt for anything that is not such a line).
[[nodiscard]] Result<Ready> parse_ready_line(std::string_view line);

}  // namespace baton::supervisor
