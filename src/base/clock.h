// Time as an injected dependency: real code gets SystemClock, tests a ManualClock (src/testing).
#pragma once

#include <chrono>
#include <cstdint>

namespace baton {

/// Monotonic time. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds since an arbitrary, fixed point.
  [[nodiscard]] virtual int64_t now_ns() const = 0;
};

/// std::chrono::steady_clock. Thread-safe.
class SystemClock final : public Clock {
 public:
  [[nodiscard]] int64_t now_ns() const override {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
};

}  // namespace baton
