#include "testing/corrupt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <random>

namespace baton::testing {
namespace {

constexpr std::array<uint64_t, 10> kExtremes = {
    0,
    1,
    0x7f,
    0xffff,
    0x7fffffff,
    0xffffffff,
    uint64_t{1} << 32,
    uint64_t{1} << 62,
    static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
    std::numeric_limits<uint64_t>::max()};

}  // namespace

std::vector<Corruption> corruptions(std::span<const std::byte> bytes, size_t header_bytes, int n,
                                    uint64_t seed) {
  std::mt19937_64 random(seed);
  header_bytes = std::clamp<size_t>(header_bytes, 1, bytes.size());
  std::vector<Corruption> out;
  for (int i = 0; i < n; ++i) {
    const size_t at = random() % (random() % 4 != 0 ? header_bytes : bytes.size());
    Corruption variant{"", {bytes.begin(), bytes.end()}};
    const uint64_t extreme = kExtremes[random() % kExtremes.size()];
    switch (i % 5) {
      case 0:
        variant.what = fmt::format("cut to {} bytes", at);
        variant.bytes.resize(at);
        variant.bytes.shrink_to_fit();  // so that a read behind the end is noticed
        break;
      case 1:
        variant.what = fmt::format("byte {} inverted", at);
        variant.bytes[at] ^= std::byte{0xff};
        break;
      case 2:
        variant.what = fmt::format("bit {} of byte {} flipped", extreme % 8, at);
        variant.bytes[at] ^= std::byte{1} << static_cast<int>(extreme % 8);
        break;
      default: {
        const size_t width = std::min<size_t>(i % 5 == 3 ? 4 : 8, bytes.size() - at);
        variant.what = fmt::format("{} bytes at {} set to {:#x}", width, at, extreme);
        std::memcpy(variant.bytes.data() + at, &extreme, width);
      }
    }
    out.push_back(std::move(variant));
  }
  return out;
}

}  // namespace baton::testing
