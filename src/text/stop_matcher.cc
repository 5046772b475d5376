#include "text/stop_matcher.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace baton::text {
namespace {

/// Length of the longest prefix of `pattern` that ends the text, after the text has grown by `c`.
uint32_t advance(const std::string& pattern, const std::vector<uint32_t>& failure, uint32_t matched,
                 char c) {
  if (matched == pattern.size()) matched = failure[matched];
  while (matched > 0 && pattern[matched] != c) matched = failure[matched];
  return pattern[matched] == c ? matched + 1 : 0;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& pattern : strings_) {
    std::vector<uint32_t> failure(pattern.size() + 1, 0);
    for (size_t k = 2; k <= pattern.size(); ++k) {
      failure[k] = advance(pattern, failure, failure[k - 1], pattern[k - 1]);
    }
    failure_.push_back(std::move(failure));
  }
}

StopMatcher::StopMatcher(std::shared_ptr<const StopStrings> stops)
    : stops_(std::move(stops)), matched_(stops_->strings().size(), 0) {}

size_t StopMatcher::held_bytes() const {
  return matched_.empty() ? 0 : *std::max_element(matched_.begin(), matched_.end());
}

StopMatcher::Output StopMatcher::push(std::string_view piece) {
  Output output;
  if (stopped_) return output;
  for (const char c : piece) {
    held_ += c;
    for (size_t s = 0; s < matched_.size(); ++s) {
      const std::string& pattern = stops_->strings()[s];
      if (pattern.empty()) continue;
      matched_[s] = advance(pattern, stops_->failure_[s], matched_[s], c);
      const bool complete = matched_[s] == pattern.size();
      if (complete &&
          (!output.stop ||
           pattern.size() > stops_->strings()[static_cast<size_t>(*output.stop)].size())) {
        output.stop = static_cast<int>(s);
      }
    }
    if (output.stop) break;
  }
  const size_t n_kept =
      output.stop ? stops_->strings()[static_cast<size_t>(*output.stop)].size() : held_bytes();
  output.text = held_.substr(0, held_.size() - n_kept);
  held_.erase(0, output.text.size());
  if (output.stop) {
    stopped_ = true;
    held_.clear();
  }
  return output;
}

std::string StopMatcher::flush() { return std::exchange(held_, {}); }

}  // namespace baton::text
