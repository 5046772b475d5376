#include "base/trace.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace baton {
namespace {

/// Labels may come from a client: nothing that ends the string or the line gets through.
void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  out += '"';
}

/// A trace that was begun and not completed: somebody still adds to it, or was killed.
bool in_progress(int fd) {
  const off_t size = ::lseek(fd, 0, SEEK_END);
  char last = 0;
  for (off_t at = size - 1; at >= 0; --at) {
    if (::pread(fd, &last, 1, at) != 1) return false;
    if (last != '\n' && last != ' ') return last != ']';
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<Trace>> Trace::open(const std::string& path, std::string_view process_name,
                                           Mode mode) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return fail(ErrorCode::kIo, "--trace {}: {}", path, std::strerror(errno));
  if (mode == Mode::kJoin && !in_progress(fd)) mode = Mode::kNew;
  if (mode == Mode::kNew && ::ftruncate(fd, 0) != 0 && errno != EINVAL) {  // a pipe has no length
    const int error = errno;
    ::close(fd);
    return fail(ErrorCode::kIo, "--trace {}: {}", path, std::strerror(error));
  }
  std::unique_ptr<Trace> trace(new Trace(fd, mode));
  trace->buffer_ = fmt::format(
      "{}\n{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{},\"tid\":0,\"args\":{{\"name\":",
      mode == Mode::kNew ? '[' : ',', ::getpid());
  append_quoted(trace->buffer_, process_name);
  trace->buffer_ += "}}";
  trace->write_locked();
  return trace;
}

Trace::~Trace() {
  if (mode_ == Mode::kNew) buffer_ += "\n]\n";
  write_locked();
  ::close(fd_);
}

void Trace::add(const TraceEvent& event) {
  const std::lock_guard lock(mutex_);
  fmt::format_to(
      std::back_inserter(buffer_),
      ",\n{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},"
      "\"args\":{{\"tokens\":{},",
      event.name, ::getpid(), ::syscall(SYS_gettid), static_cast<double>(event.begin_ns) / 1e3,
      static_cast<double>(event.end_ns - event.begin_ns) / 1e3, event.n_tokens);
  if (event.layer) fmt::format_to(std::back_inserter(buffer_), "\"layer\":{},", *event.layer);
  if (event.n_bytes) fmt::format_to(std::back_inserter(buffer_), "\"bytes\":{},", *event.n_bytes);
  buffer_ += "\"requests\":[";
  for (size_t i = 0; i < event.requests.size(); ++i) {
    if (i > 0) buffer_ += ',';
    append_quoted(buffer_, event.requests[i]);
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
