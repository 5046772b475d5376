// Trace events in Chrome's JSON array format (chrome://tracing, Perfetto). One file per run.
//
// Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("JSON
// Array Format": the closing bracket is optional, so a file cut short by a kill still loads).
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace baton {

/// One complete ("X") event.
struct TraceEvent {
  std::string_view name;  ///< queue, prefill, layer, put, decode
  int64_t begin_ns = 0;   ///< steady_clock: the same in all processes of a host
  int64_t end_ns = 0;
  std::span<const std::string> requests{};  ///< labels
  int64_t n_tokens = 0;
  std::optional<int> layer{};
  std::optional<int64_t> n_bytes{};
};

/// Appends events to a file; each write is whole lines, so several processes can share one file.
/// Thread-safe.
class Trace {
 public:
  enum class Mode {
    kNew,   ///< starts the file afresh, and completes it when closed: the first process, which
            ///< outlives the others
    kJoin,  ///< adds to the file that another process has begun and not completed; else as kNew
  };
  /// `process_name` becomes this process's name in the viewer, e.g. "engine 0 (both)".
  [[nodiscard]] static Result<std::unique_ptr<Trace>> open(const std::string& path,
                                                           std::string_view process_name,
                                                           Mode mode = Mode::kNew);
  ~Trace();
  void add(const TraceEvent& event);

 private:
  Trace(int fd, Mode mode) : fd_(fd), mode_(mode) {}
  void write_locked();

  std::mutex mutex_;
  int fd_;
  Mode mode_;
  std::string buffer_;
  bool failed_ = false;  ///< a write went wrong: the rest is left out
};

}  // namespace baton
