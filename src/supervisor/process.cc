#include "supervisor/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace baton::supervisor {
namespace {

constexpr int kFirstPrivateFd = 10;  // above what a child is given

/// Everything between fork and exec: system calls only, as other threads may have held any lock.
struct ChildStart {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int ready_fd;
  int lifeline_fd;
  int error_fd;  ///< gets errno when the exec fails
  pid_t parent;

  [[noreturn]] void fail() const {
    const int error = errno;
    (void)!::write(error_fd, &error, sizeof(error));
    ::_exit(127);
  }
  void dup_to(int from, int to) const {
    if (::dup2(from, to) < 0) fail();
  }

  [[noreturn]] void run() const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it died before it could take us along
    ::setpgid(0, 0);
    for (int signal = 1; signal < NSIG; ++signal) std::signal(signal, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);

    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0) fail();
    dup_to(null, STDIN_FILENO);
    dup_to(STDERR_FILENO, STDOUT_FILENO);
    // First out of the way, as each may have the number that another one is to get.
    const int ready = ::fcntl(ready_fd, F_DUPFD_CLOEXEC, kFirstPrivateFd);
    const int lifeline = ::fcntl(lifeline_fd, F_DUPFD_CLOEXEC, kFirstPrivateFd);
    const int error = ::fcntl(error_fd, F_DUPFD_CLOEXEC, kFirstPrivateFd);
    if (ready < 0 || lifeline < 0 || error < 0) fail();
    ChildStart moved = *this;
    moved.error_fd = error;
    moved.dup_to(ready, kReadyFd);
    moved.dup_to(lifeline, kLifelineFd);
    // Descriptors that somebody opened without close-on-exec end here too.
    constexpr unsigned kCloseRangeCloexec = 1U << 2;
    ::syscall(SYS_close_range, kLifelineFd + 1, ~0U, kCloseRangeCloexec);
    ::execve(program, arguments, environment);
    moved.fail();
  }
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

/// The errno of a failed exec, or 0 when it went well and closed the pipe.
int exec_error(int fd) {
  int error = 0;
  ssize_t n = 0;
  do {
    n = ::read(fd, &error, sizeof(error));
  } while (n < 0 && errno == EINTR);
  return n == sizeof(error) ? error : 0;
}

int pidfd_open(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<Pipe> Pipe::create() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0)
    return baton::fail(ErrorCode::kIo, "no pipe: {}", std::strerror(errno));
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

ChildProcess::ChildProcess(int pid, Fd pidfd, Fd ready)
    : pid_(pid), pidfd_(std::move(pidfd)), ready_(std::move(ready)) {}

Result<std::unique_ptr<ChildProcess>> ChildProcess::spawn(const Command& command,
                                                          int lifeline_read_fd) {
  auto ready = Pipe::create();
  if (!ready) return tl::unexpected(ready.error());
  auto error = Pipe::create();
  if (!error) return tl::unexpected(error.error());
  ::fcntl(ready->read_end.get(), F_SETFL, O_NONBLOCK);
  const auto arguments = pointers(command.arguments);
  const auto environment = pointers(command.environment);
  const ChildStart start{
      command.program.c_str(), arguments.data(),       environment.data(), ready->write_end.get(),
      lifeline_read_fd,        error->write_end.get(), ::getpid()};

  const pid_t pid = ::fork();
  if (pid == 0) start.run();
  if (pid < 0) return fail(ErrorCode::kIo, "no further process: {}", std::strerror(errno));
  error->write_end.reset();
  Fd pidfd(pidfd_open(pid));
  const int pidfd_errno = errno;
  std::unique_ptr<ChildProcess> child(
      new ChildProcess(pid, std::move(pidfd), std::move(ready->read_end)));
  if (child->pidfd() < 0) {
    return fail(ErrorCode::kIo, "no pidfd for a child: {}", std::strerror(pidfd_errno));
  }
  if (const int failed = exec_error(error->read_end.get()); failed != 0) {
    return fail(ErrorCode::kIo, "can't run {}: {}", command.program, std::strerror(failed));
  }
  return child;
}

ChildProcess::~ChildProcess() {
  if (reaped_) return;
  ::kill(pid_, SIGKILL);  // not reaped, so the pid is still its own
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::send_signal(int signal) {
  if (!reaped_) ::kill(pid_, signal);
}

std::optional<std::string> ChildProcess::reap() {
  if (reaped_) return std::nullopt;
  int status = 0;
  const pid_t got = ::waitpid(pid_, &status, WNOHANG);
  if (got == 0) return std::nullopt;
  reaped_ = true;
  if (got < 0) return "an unknown status";  // whoever started us has SIGCHLD ignored
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return fmt::format("signal {} ({})", signal, ::strsignal(signal));
  }
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

}  // namespace baton::supervisor
