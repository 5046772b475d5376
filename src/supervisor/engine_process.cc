#include "supervisor/engine_process.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "supervisor/ready_line.h"

namespace baton::supervisor {
namespace {

constexpr size_t kMaxReadyBytes = 64 << 10;

std::chrono::milliseconds in_ms(EngineProcess::Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time);
}

}  // namespace

std::string_view name(ProcessState state) {
  switch (state) {
    case ProcessState::kStarting:
      return "starting";
    case ProcessState::kReady:
      return "ready";
    case ProcessState::kDraining:
      return "draining";
    case ProcessState::kDead:
      break;
  }
  return "dead";
}

EngineProcess::EngineProcess(EngineStatus status, const Options& options)
    : options_(options), status_(std::move(status)), backoff_(options.backoff) {
  status_.state = ProcessState::kDead;
}

void EngineProcess::spawn(const Command& command, int lifeline_read_fd, Clock::time_point now) {
  if (spawned_) ++status_.restarts;
  spawned_ = true;
  since_ = now;
  failed_ = false;
  ready_text_.clear();
  auto process = ChildProcess::spawn(command, lifeline_read_fd);
  if (!process) {
    fail_with(process.error().message, process.error().code);
    restart_at_ = now + backoff_.after_death({});
    return;
  }
  process_ = std::move(*process);
  status_.pid = process_->pid();
  status_.state = ProcessState::kStarting;
}

bool EngineProcess::look(Clock::time_point now) {
  if (process_ == nullptr) return false;
  const EngineStatus before = status_;
  // What it said comes before how it ended.
  read_ready(now);
  if (status_.state == ProcessState::kStarting && !failed_ &&
      now >= since_ + options_.start_timeout) {
    fail_with(fmt::format("not ready after {} s", in_ms(options_.start_timeout).count() / 1000.0),
              ErrorCode::kUnavailable);
  }
  if (const auto how = process_->reap()) bury(*how, now);
  return status_.state != before.state || status_.last_error != before.last_error;
}

void EngineProcess::read_ready(Clock::time_point now) {
  char buffer[4096];
  while (process_->ready_fd() >= 0) {
    const ssize_t n = ::read(process_->ready_fd(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n > 0) ready_text_.append(buffer, static_cast<size_t>(n));
    if (ready_text_.find('\n') != std::string::npos || ready_text_.size() > kMaxReadyBytes) {
      on_ready_line(now);
    } else if (n > 0) {
      continue;
    }
    process_->close_ready();
  }
}

void EngineProcess::on_ready_line(Clock::time_point now) {
  auto ready = parse_ready_line(std::string_view(ready_text_).substr(0, ready_text_.find('\n')));
  if (!ready) return fail_with(ready.error().message, ready.error().code);
  if (status_.state != ProcessState::kStarting) return;
  status_.url = std::move(ready->url);
  status_.state = ProcessState::kReady;
  since_ = now;
}

void EngineProcess::fail_with(std::string reason, ErrorCode code) {
  failed_ = true;
  status_.last_error = std::move(reason);
  error_code_ = code;
  kill();
}

void EngineProcess::bury(const std::string& how, Clock::time_point now) {
  const bool was_ready = status_.state == ProcessState::kReady;
  if (!failed_ && status_.state != ProcessState::kDraining) {
    status_.last_error =
        fmt::format("ended with {}{}", how, was_ready ? "" : " before it was ready");
    error_code_ = ErrorCode::kInternal;
  }
  restart_at_ =
      now + backoff_.after_death(was_ready ? in_ms(now - since_) : std::chrono::milliseconds(0));
  process_.reset();
  status_.state = ProcessState::kDead;
  status_.pid = 0;
  status_.url.clear();
}

std::optional<EngineProcess::Clock::time_point> EngineProcess::deadline() const {
  if (process_ == nullptr) return restart_at_;
  if (status_.state == ProcessState::kStarting && !failed_) return since_ + options_.start_timeout;
  return std::nullopt;
}

bool EngineProcess::restart_is_due(Clock::time_point now) const {
  return process_ == nullptr && now >= restart_at_;
}

std::vector<int> EngineProcess::poll_fds() const {
  if (process_ == nullptr) return {};
  return {process_->pidfd(), process_->ready_fd()};
}

void EngineProcess::terminate() {
  if (process_ == nullptr) return;
  process_->send_signal(SIGTERM);
  status_.state = ProcessState::kDraining;
}

void EngineProcess::kill_hung(const std::string& reason) {
  fail_with(fmt::format("hung and was killed: {}", reason), ErrorCode::kUnavailable);
}

void EngineProcess::kill() {
  if (process_ != nullptr) process_->send_signal(SIGKILL);
}

}  // namespace baton::supervisor
