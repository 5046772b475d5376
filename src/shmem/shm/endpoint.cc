#include "shmem/shm/endpoint.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "shmem/shm/wire.h"

namespace baton::shmem {
namespace {

constexpr int kSoPeerPidfd = 77;     // SO_PEERPIDFD, Linux 6.5; not in the headers of Debian 12
constexpr size_t kMaxPacketFds = 4;  ///< two are expected

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
};

Address abstract_address(const std::string& name) {
  Address a;
  a.address.sun_family = AF_UNIX;
  // sun_path[0] = 0 makes it abstract: no file, gone with the last descriptor.
  std::memcpy(a.address.sun_path + 1, name.data(), name.size());
  a.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

Fd new_socket() { return Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

short events_now(int fd) {
  pollfd entry{fd, POLLIN, 0};
  while (poll(&entry, 1, 0) < 0 && errno == EINTR) {
  }
  return entry.revents;
}

Fd open_pidfd(const Fd& socket, int pid) {
  int pidfd = -1;
  socklen_t length = sizeof pidfd;
  if (getsockopt(socket.get(), SOL_SOCKET, kSoPeerPidfd, &pidfd, &length) == 0) return Fd(pidfd);
  Fd opened(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  // While the connection is up the process is, so the number can't have gone to another one.
  if (opened.valid() && hung_up(socket)) return {};
  return opened;
}

std::vector<Fd> take_fds(msghdr& message) {
  std::vector<Fd> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < n; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

bool Process::dead() const { return events_now(pidfd.get()) != 0; }

std::string socket_name(const std::string& uid, int first_pe) {
  return fmt::format("baton/heap/{}/{}", uid, first_pe);
}

Result<Fd> listen_at(const std::string& name) {
  Fd fd = new_socket();
  const Address a = abstract_address(name);
  if (fd.valid() && bind(fd.get(), reinterpret_cast<const sockaddr*>(&a.address), a.length) == 0 &&
      listen(fd.get(), SOMAXCONN) == 0) {
    return fd;
  }
  return fail(errno == EADDRINUSE ? ErrorCode::kExhausted : ErrorCode::kIo, "socket @{}: {}", name,
              std::strerror(errno));
}

Fd dial(const std::string& name) {
  Fd fd = new_socket();
  const Address a = abstract_address(name);
  if (!fd.valid() ||
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&a.address), a.length) != 0) {
    return {};
  }
  return fd;
}

Fd accept_one(const Fd& listening) {
  return Fd(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Result<std::shared_ptr<Process>> peer_process(const Fd& socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return fail(ErrorCode::kIo, "credentials of a peer: {}", std::strerror(errno));
  }
  if (credentials.uid != geteuid()) {
    return fail(ErrorCode::kUnavailable, "a peer (pid {}) belongs to user {}, expected {}",
                credentials.pid, credentials.uid, geteuid());
  }
  if (credentials.pid <= 0) {
    return fail(ErrorCode::kUnavailable, "a peer lives in another PID namespace");
  }
  auto process = std::make_shared<Process>();
  process->pid = credentials.pid;
  process->pidfd = open_pidfd(socket, credentials.pid);
  if (!process->pidfd.valid()) {
    return fail(ErrorCode::kUnavailable, "peer with pid {} has died already", credentials.pid);
  }
  return process;
}

bool hung_up(const Fd& socket) { return (events_now(socket.get()) & (POLLHUP | POLLERR)) != 0; }

Status send_packet(const Fd& socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxPacketFds * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  if (sendmsg(socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    return fail(ErrorCode::kIo, "sending to a peer: {}", std::strerror(errno));
  }
  return {};
}

Result<std::optional<Packet>> receive_packet(const Fd& socket) {
  Packet packet;
  packet.bytes.resize(kMaxMessageBytes);
  iovec data{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxPacketFds * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return std::optional<Packet>();
  if (n < 0) return fail(ErrorCode::kUnavailable, "a peer is gone: {}", std::strerror(errno));
  packet.fds = take_fds(message);
  // A packet of no bytes looks the same as the end; nobody has a use for one.
  if (n == 0) return fail(ErrorCode::kUnavailable, "a peer has closed the connection");
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return fail(ErrorCode::kCorrupt, "message of a peer: too many bytes or descriptors");
  }
  packet.bytes.resize(static_cast<size_t>(n));
  return std::optional<Packet>(std::move(packet));
}

Status check_doorbell(const Fd& fd) {
  constexpr std::string_view kEventfd = "anon_inode:[eventfd]";
  std::array<char, 64> target{};
  const std::string link = fmt::format("/proc/self/fd/{}", fd.get());
  const ssize_t n = readlink(link.c_str(), target.data(), target.size());
  if (n < 0 || std::string_view(target.data(), static_cast<size_t>(n)) != kEventfd) {
    return fail(ErrorCode::kCorrupt, "the doorbell of a peer isn't an eventfd");
  }
  const int flags = fcntl(fd.get(), F_GETFL);
  if (flags < 0 || fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return fail(ErrorCode::kIo, "the doorbell of a peer: {}", std::strerror(errno));
  }
  return {};
}

Result<Fd> make_doorbell() {
  Fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return fail(ErrorCode::kIo, "eventfd: {}", std::strerror(errno));
  return fd;
}

void ring(const Fd& doorbell) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(doorbell.get(), &one, sizeof one);
}

void silence(const Fd& doorbell) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(doorbell.get(), &count, sizeof count);
}

}  // namespace baton::shmem
