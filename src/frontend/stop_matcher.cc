#include "frontend/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace baton::frontend {

std::string StopMatcher::push(std::string_view text) {
  if (match_) return {};
  if (stops_.empty()) return std::string(text);
  held_ += text;
  // The match that ends first is the one that a reader of single characters would have seen; of two
  // that end together, the longer one.
  size_t best_begin = std::string::npos;
  size_t best_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best_end || (end == best_end && begin < best_begin)) {
      best_begin = begin;
      best_end = end;
      match_ = stop;
    }
  }
  const size_t n_certain = match_ ? best_begin : held_.size() - held_length();
  std::string out = held_.substr(0, n_certain);
  held_.erase(0, match_ ? held_.size() : n_certain);
  return out;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

size_t StopMatcher::held_length() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n)) {
        longest = n;
        break;
      }
    }
  }
  return longest;
}

}  // namespace baton::frontend
