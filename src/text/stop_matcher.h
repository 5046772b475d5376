// Stop strings in streamed text: nothing that may be the start of one is let out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton::text {

/// The stop strings of a request, prepared once for all its choices. Immutable, so thread-safe.
class StopStrings {
 public:
  /// Empty strings never match.
  explicit StopStrings(std::vector<std::string> strings);
  [[nodiscard]] const std::vector<std::string>& strings() const { return strings_; }

 private:
  friend class StopMatcher;
  std::vector<std::string> strings_;
  /// failure_[s][k]: length of the longest proper prefix of string s that ends its first k bytes
  /// (Knuth, Morris, Pratt).
  std::vector<std::vector<uint32_t>> failure_;
};

/// One choice's state. The match is the one that ends first; of those that end together, the
/// longest. So the outcome doesn't depend on how the text is cut into pieces. Time: O(bytes ×
/// strings). Thread-compatible.
class StopMatcher {
 public:
  struct Output {
    std::string text;         ///< certain now; never any part of a match
    std::optional<int> stop;  ///< index of the stop string that has just been completed
  };

  explicit StopMatcher(std::shared_ptr<const StopStrings> stops);

  /// Takes the next piece. After a match everything is swallowed: text stays empty.
  [[nodiscard]] Output push(std::string_view piece);
  /// The end of the text: what was held back, if there was no match.
  [[nodiscard]] std::string flush();
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  [[nodiscard]] size_t held_bytes() const;

  std::shared_ptr<const StopStrings> stops_;
  std::vector<uint32_t> matched_;  ///< for each stop string, how much of it ends the text so far
  std::string held_;               ///< the text not let out yet
  bool stopped_ = false;
};

}  // namespace baton::text
