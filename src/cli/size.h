// Sizes and times as people type them on a command line: "2GiB", "512M", "30s".
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace baton::cli {

/// Bytes: a number with B, K/KB/KiB, M/MB/MiB, G/GB/GiB or T/TB/TiB (all powers of 1024), or plain
/// bytes. Errors name `flag` and the value.
[[nodiscard]] Result<uint64_t> parse_bytes(std::string_view flag, std::string_view text);

/// A number with ms, s, m or h; plain numbers are seconds. At most 24 h.
[[nodiscard]] Result<std::chrono::milliseconds> parse_duration(std::string_view flag,
                                                               std::string_view text);

}  // namespace baton::cli
