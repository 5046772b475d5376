// How long to wait before the dead are started again.
#pragma once

#include <algorithm>
#include <chrono>

namespace baton::supervisor {

struct BackoffOptions {
  std::chrono::milliseconds first{100};  ///< doubled with every death …
  std::chrono::milliseconds max{10'000};
  std::chrono::milliseconds stable_after{60'000};  ///< … until one that had been up for so long
};

/// Owner: one thread. Pure but for its count.
class Backoff {
 public:
  explicit Backoff(const BackoffOptions& options) : options_(options), next_(options.first) {}

  /// The wait after a death; `up` = how long it had been ready, 0 if never.
  std::chrono::milliseconds after_death(std::chrono::milliseconds up) {
    if (up >= options_.stable_after) next_ = options_.first;
    const auto wait = next_;
    next_ = std::min(2 * next_, options_.max);
    return wait;
  }

 private:
  BackoffOptions options_;
  std::chrono::milliseconds next_;
};

}  // namespace baton::supervisor
