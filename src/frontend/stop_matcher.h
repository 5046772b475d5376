// Stop strings over text that arrives in pieces.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton::frontend {

/// Holds back the text that may turn out to be the beginning of a stop string. Thread-compatible.
class StopMatcher {
 public:
  /// No stop string is empty.
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Takes more text; returns what can't be part of a stop string any more. After a match: what
  /// stands before the stop string that ends first; later text is dropped.
  [[nodiscard]] std::string push(std::string_view text);
  /// The text still held back; the end of the sequence makes it certain.
  [[nodiscard]] std::string finish();
  /// The stop string that was found.
  [[nodiscard]] const std::optional<std::string>& match() const { return match_; }

 private:
  [[nodiscard]] size_t held_length() const;

  std::vector<std::string> stops_;
  std::string held_;
  std::optional<std::string> match_;
};

}  // namespace baton::frontend
