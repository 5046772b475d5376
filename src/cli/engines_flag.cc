#include "cli/engines_flag.h"

#include <charconv>

namespace baton::cli {

Result<EngineCounts> parse_engines(std::string_view text) {
  EngineCounts counts;
  const auto bad = [&] {
    return fail(
        ErrorCode::kInvalidArgument,
        "--engines '{}': use counts of P (prefill), D (decode) and B (both), as in 1B or 2P1D",
        text);
  };
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    int n = 0;
    const auto [letter, ec] = std::from_chars(at, end, n);
    if (ec != std::errc() || letter == end || n < 1 || n > 1024) return bad();
    int* count = *letter == 'P'   ? &counts.prefill
                 : *letter == 'D' ? &counts.decode
                 : *letter == 'B' ? &counts.both
                                  : nullptr;
    if (count == nullptr || *count != 0) return bad();
    *count = n;
    at = letter + 1;
  }
  if (counts.both == 0 && (counts.prefill == 0 || counts.decode == 0)) return bad();
  return counts;
}

}  // namespace baton::cli
