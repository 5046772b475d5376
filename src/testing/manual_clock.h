// A clock that moves only when a test says so.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace baton::testing {

/// Thread-safe.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(int64_t now_ns = 1'000'000'000) : now_ns_(now_ns) {}
  [[nodiscard]] int64_t now_ns() const override { return now_ns_.load(); }
  void advance(int64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<int64_t> now_ns_;
};

}  // namespace baton::testing
