// Limits of one template: what untrusted source and untrusted values may cost. Bottom of the jinja
// folder.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::jinja {

/// Defaults are far above what chat templates need and far below what hurts a server.
struct Limits {
  size_t max_source_bytes = size_t{1} << 20;
  int max_nesting = 200;           ///< of expressions and blocks in the source, of values
  int max_recursion = 1500;        ///< evaluator frames in flight, macro calls included
  int64_t max_steps = 20'000'000;  ///< nodes evaluated, plus work per 64 bytes copied
  size_t max_output_bytes = size_t{64} << 20;  ///< text rendered and captured, together
  size_t max_value_bytes = size_t{512} << 20;  ///< values alive at one time
};

/// Counts steps and live bytes of one rendering. Overrunning is sticky: whoever overran finishes
/// its (bounded) operation, the evaluator then stops with an error. Thread-compatible.
class Meter {
 public:
  explicit Meter(const Limits& limits) : limits_(limits) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void spend(int64_t steps) { steps_ += steps; }
  /// Work on `bytes` of string or list data.
  void spend_bytes(size_t bytes) { steps_ += static_cast<int64_t>(bytes / 64); }
  void add(size_t bytes) {
    live_bytes_ += bytes;
    if (live_bytes_ > limits_.max_value_bytes) too_big_ = true;
    spend_bytes(bytes);
  }
  void release(size_t bytes) { live_bytes_ -= bytes; }
  void mark_too_deep() { too_deep_ = true; }
  void mark_too_big() { too_big_ = true; }
  /// Whether a value of `bytes` may be made; if not, the rendering is over. Ask before an
  /// allocation whose size a template controls.
  [[nodiscard]] bool fits(size_t bytes) {
    if (bytes > limits_.max_value_bytes || live_bytes_ + bytes > limits_.max_value_bytes) {
      too_big_ = true;
      return false;
    }
    return true;
  }

  [[nodiscard]] bool overrun() const { return steps_ > limits_.max_steps || too_big_ || too_deep_; }
  [[nodiscard]] bool out_of_steps() const { return steps_ > limits_.max_steps; }
  [[nodiscard]] bool too_big() const { return too_big_; }
  [[nodiscard]] const Limits& limits() const { return limits_; }

 private:
  const Limits limits_;
  int64_t steps_ = 0;
  size_t live_bytes_ = 0;
  bool too_big_ = false;
  bool too_deep_ = false;
};

}  // namespace baton::jinja
