// How much memory there is to be had.
#pragma once

#include <cstdint>

namespace baton::cli {

/// Memory that the kernel could give us now (MemAvailable), or 0 if it doesn't say.
[[nodiscard]] uint64_t available_bytes();

}  // namespace baton::cli
