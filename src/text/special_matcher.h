// Finds special and user-defined tokens in a text: at each place the longest one, from left to
// right.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace baton::text {

/// A trie of token texts. Immutable once built, so thread-safe.
class SpecialMatcher {
 public:
  struct Entry {
    std::string_view text;  ///< not empty; copied
    TokenId id = 0;
  };
  struct Match {
    size_t begin = 0;  ///< of the token in the text; == text.size() if there is none
    size_t n_bytes = 0;
    TokenId id = -1;
  };

  SpecialMatcher() = default;
  explicit SpecialMatcher(std::vector<Entry> entries);

  /// The first match at or after `begin`. Time: linear in the distance, times the longest token.
  [[nodiscard]] Match next(std::string_view text, size_t begin) const;

 private:
  struct Node {
    TokenId id = -1;                                     ///< the token that ends here
    std::vector<std::pair<uint8_t, uint32_t>> children;  ///< by byte
  };
  [[nodiscard]] Match longest_at(std::string_view text, size_t begin) const;

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> roots_{};  ///< node for a first byte; 0: none starts so
};

}  // namespace baton::text
