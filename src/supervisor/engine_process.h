// One engine's process over its lives: started, ready, dead, started again.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/role.h"
#include "supervisor/backoff.h"
#include "supervisor/process.h"

namespace baton::supervisor {

enum class ProcessState { kStarting, kReady, kDraining, kDead };
/// "starting", "ready", "draining", "dead".
[[nodiscard]] std::string_view name(ProcessState state);

/// A picture of one engine process.
struct EngineStatus {
  int index = 0;
  std::string name;  ///< "engine 1 (decode)"
  std::string url;   ///< empty unless it is ready or draining
  Role role = Role::kBoth;
  int pid = 0;  ///< 0 = none
  std::vector<int> cpus;
  ProcessState state = ProcessState::kDead;
  int restarts = 0;        ///< how often it was started again
  std::string last_error;  ///< of its latest death or failed start; empty = never
};

/// Owned and used by the supervisor's thread. Does nothing by itself: look() is to be called when
/// one of poll_fds() is readable or deadline() has passed.
class EngineProcess {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    std::chrono::milliseconds start_timeout{180'000};
    BackoffOptions backoff;
  };

  EngineProcess(EngineStatus status, const Options& options);

  /// dead → starting; a program that can't be run is a failure like that of a start.
  void spawn(const Command& command, int lifeline_read_fd, Clock::time_point now);
  /// Takes in what has happened. True if status() has changed.
  bool look(Clock::time_point now);
  /// When look() or, if it is dead, spawn() is due.
  [[nodiscard]] std::optional<Clock::time_point> deadline() const;
  /// Whether its wait after a death is over.
  [[nodiscard]] bool restart_is_due(Clock::time_point now) const;
  /// Readable when there is something to look at; -1s are to be passed over.
  [[nodiscard]] std::vector<int> poll_fds() const;

  /// SIGTERM: draining until it has ended; it is not to come back.
  void terminate();
  void kill();
  /// It is ready, but whoever uses it gets nowhere: killed, for that reason.
  void kill_hung(const std::string& reason);

  [[nodiscard]] const EngineStatus& status() const { return status_; }
  [[nodiscard]] bool running() const { return process_ != nullptr; }
  /// Of the latest failure: what the engine said itself, or kInternal.
  [[nodiscard]] ErrorCode error_code() const { return error_code_; }

 private:
  void read_ready(Clock::time_point now);
  void on_ready_line(Clock::time_point now);
  void fail_with(std::string reason, ErrorCode code);
  void bury(const std::string& how, Clock::time_point now);

  const Options options_;
  EngineStatus status_;
  ErrorCode error_code_ = ErrorCode::kInternal;
  Backoff backoff_;
  std::unique_ptr<ChildProcess> process_;
  std::string ready_text_;   ///< what has come through the ready pipe
  bool spawned_ = false;     ///< it has had a life
  bool failed_ = false;      ///< it is being killed for the reason in last_error
  Clock::time_point since_;  ///< of the present state
  Clock::time_point restart_at_;
};

}  // namespace baton::supervisor
