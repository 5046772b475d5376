#include "text/special_matcher.h"

#include <algorithm>

namespace baton::text {

SpecialMatcher::SpecialMatcher(std::vector<Entry> entries) {
  nodes_.emplace_back();  // 0 means "none"
  for (const Entry& entry : entries) {
    uint32_t& root = roots_[static_cast<uint8_t>(entry.text[0])];
    if (root == 0) {
      root = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    }
    uint32_t node = root;
    for (const char c : entry.text.substr(1)) {
      const uint8_t byte = static_cast<uint8_t>(c);
      auto& children = nodes_[node].children;
      const auto at = std::find_if(children.begin(), children.end(),
                                   [byte](const auto& child) { return child.first == byte; });
      if (at != children.end()) {
        node = at->second;
        continue;
      }
      const uint32_t added = static_cast<uint32_t>(nodes_.size());
      children.emplace_back(byte, added);
      nodes_.emplace_back();
      node = added;
    }
    if (nodes_[node].id < 0) nodes_[node].id = entry.id;
  }
}

SpecialMatcher::Match SpecialMatcher::longest_at(std::string_view text, size_t begin) const {
  Match best{begin, 0, -1};
  uint32_t node = roots_[static_cast<uint8_t>(text[begin])];
  for (size_t end = begin + 1; node != 0; ++end) {
    if (nodes_[node].id >= 0) best = {begin, end - begin, nodes_[node].id};
    if (end == text.size()) break;
    const uint8_t byte = static_cast<uint8_t>(text[end]);
    const auto& children = nodes_[node].children;
    const auto at = std::find_if(children.begin(), children.end(),
                                 [byte](const auto& child) { return child.first == byte; });
    node = at == children.end() ? 0 : at->second;
  }
  return best;
}

SpecialMatcher::Match SpecialMatcher::next(std::string_view text, size_t begin) const {
  for (size_t i = begin; i < text.size(); ++i) {
    if (roots_[static_cast<uint8_t>(text[i])] == 0) continue;
    const Match match = longest_at(text, i);
    if (match.id >= 0) return match;
  }
  return {text.size(), 0, -1};
}

}  // namespace baton::text
