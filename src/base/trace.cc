#include "base/trace.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace baton {
Result<std::unique_ptr<Trace>> Trace::open(const std::string& path, std::string_view process_name) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return fail(ErrorCode::kIo, "--trace {}: {}", path, std::strerror(errno));
  std::unique_ptr<Trace> trace(new Trace(fd));
  trace->buffer_ = fmt::format(
      "[\n{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{},\"tid\":0,\"args\":{{\"name\":\"{}\"}"
      "}}}",
      ::getpid(), process_name);
  trace->write_locked();
  return trace;
}

Trace::Trace(int fd) : fd_(fd) {}

Trace::~Trace() {
  buffer_ += "\n]\n";
  write_locked();
  ::close(fd_);
}

void Trace::add(const TraceEvent& event) {
  const std::lock_guard lock(mutex_);
  fmt::format_to(
      std::back_inserter(buffer_),
      ",\n{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},"
      "\"args\":{{\"tokens\":{},\"requests\":[",
      event.name, ::getpid(), ::syscall(SYS_gettid), static_cast<double>(event.begin_ns) / 1e3,
      static_cast<double>(event.end_ns - event.begin_ns) / 1e3, event.n_tokens);
  for (size_t i = 0; i < event.requests.size(); ++i) {
    fmt::format_to(std::back_inserter(buffer_), "{}\"{:016x}\"", i == 0 ? "" : ",",
                   event.requests[i].value);
  }
  buffer_ += "]}}";
  write_locked();  // a few µs, and a kill loses nothing
}

void Trace::write_locked() {
  if (failed_) return;
  // One write of whole events: with O_APPEND the events of several processes don't interleave.
  const ssize_t n = ::write(fd_, buffer_.data(), buffer_.size());
  if (n < 0 || static_cast<size_t>(n) != buffer_.size())
    failed_ = true;  // a full disk: no half events
  buffer_.clear();
}

}  // namespace baton
