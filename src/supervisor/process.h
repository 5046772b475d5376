// One child process: spawned so that it can't outlive this process, watched by its pidfd.
//
// Three things end a child with its parent: the parent-death signal (SIGKILL, sent when the
// *thread* that forked ends, hence the rule below), a check for a parent that died before that was
// set, and the lifeline, a pipe that ends with its last writer: children that read it see the end
// of the file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace baton::supervisor {

/// Where a child finds its two pipes; every other descriptor above stderr is closed at the exec.
inline constexpr int kReadyFd = 3;     ///< the child writes one JSON line: ready, or why not
inline constexpr int kLifelineFd = 4;  ///< end of file: the parent is gone

/// What to run.
struct Command {
  std::string program;                   ///< a path
  std::vector<std::string> arguments;    ///< argv, [0] included
  std::vector<std::string> environment;  ///< all of it, NAME=value
};

/// Owns a descriptor. Movable.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = other.release();
    }
    return *this;
  }

  [[nodiscard]] int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset();

 private:
  int fd_;
};

/// Both ends of a pipe, close-on-exec.
struct Pipe {
  Fd read_end;
  Fd write_end;
  [[nodiscard]] static Result<Pipe> create();
};

/// Owned and used by one thread, which must live as long as the child is to.
class ChildProcess {
 public:
  /// The child gets its own process group (a Ctrl-C in the terminal is ours to deal with), no
  /// stdin, its stdout on our stderr, no blocked or ignored signals. Errors: out of processes or
  /// descriptors, or the program can't be run.
  [[nodiscard]] static Result<std::unique_ptr<ChildProcess>> spawn(const Command& command,
                                                                   int lifeline_read_fd);
  /// Kills and reaps what still runs.
  ~ChildProcess();

  [[nodiscard]] int pid() const { return pid_; }
  /// Readable once the child has ended.
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  /// What the child writes to kReadyFd; never blocks.
  [[nodiscard]] int ready_fd() const { return ready_.get(); }
  void close_ready() { ready_.reset(); }
  /// Nothing happens if it has ended.
  void send_signal(int signal);
  /// How it ended ("exit status 1", "signal 9 (Killed)"); nothing while it runs.
  [[nodiscard]] std::optional<std::string> reap();

 private:
  ChildProcess(int pid, Fd pidfd, Fd ready);

  int pid_;
  Fd pidfd_;
  Fd ready_;
  bool reaped_ = false;
};

}  // namespace baton::supervisor
