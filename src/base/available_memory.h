// How much memory can still be taken without swapping or an end by the system.
#pragma once

#include <cstdint>

namespace baton {

/// Bytes; the least of what the machine and this process's memory control group (v2) have left. 0:
/// unknown.
[[nodiscard]] uint64_t available_bytes();

}  // namespace baton
