// Damaged variants of a file, for tests of everything that reads files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace baton::testing {

struct Corruption {
  std::string
      what;  ///< "cut to 17 bytes", "byte 33 flipped", …: names the variant in a failed test
  std::vector<std::byte> bytes;
};

/// About `n` damaged copies of `bytes`, the same for the same `seed`: cut off, single bytes and
/// bits changed, and 32- and 64-bit fields overwritten with extreme numbers; places are chosen in
/// the first `header_bytes` three times out of four (the rest is tensor data, where damage can't be
/// noticed).
[[nodiscard]] std::vector<Corruption> corruptions(std::span<const std::byte> bytes,
                                                  size_t header_bytes, int n, uint64_t seed);

}  // namespace baton::testing
