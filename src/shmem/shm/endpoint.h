// The operating system's side of meeting: abstract Unix sockets of SOCK_SEQPACKET, descriptors sent
// along, and who is at the other end. Nothing here blocks. Thread-safe (no state).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "shmem/shm/fd.h"

namespace baton::shmem {

/// A process that may hold memory of ours: readable pidfd = dead, with all of its threads, and past
/// writing.
struct Process {
  int pid = 0;
  Fd pidfd;

  [[nodiscard]] bool dead() const;
};

/// Where the member that starts at `first_pe` listens.
[[nodiscard]] std::string socket_name(const std::string& uid, int first_pe);
/// kExhausted: the name is taken.
[[nodiscard]] Result<Fd> listen_at(const std::string& name);
/// An invalid Fd: nobody listens there, or not now (queue full).
[[nodiscard]] Fd dial(const std::string& name);
/// An invalid Fd: nobody waits.
[[nodiscard]] Fd accept_one(const Fd& listening);

/// The process at the other end, refused unless its effective user is ours.
[[nodiscard]] Result<std::shared_ptr<Process>> peer_process(const Fd& socket);
/// Has the other end closed the connection?
[[nodiscard]] bool hung_up(const Fd& socket);

/// One packet, with descriptors. kIo: not sent.
[[nodiscard]] Status send_packet(const Fd& socket, std::span<const std::byte> bytes,
                                 std::span<const int> fds = {});
struct Packet {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;
};
/// Nothing: no packet is there now. kUnavailable: the other end has closed. kCorrupt: packet longer
/// than kMaxMessageBytes or with too many descriptors.
[[nodiscard]] Result<std::optional<Packet>> receive_packet(const Fd& socket);

/// Takes a descriptor as a doorbell: refused unless it is an eventfd. It never blocks from here on.
[[nodiscard]] Status check_doorbell(const Fd& fd);
/// A new eventfd that doesn't block.
[[nodiscard]] Result<Fd> make_doorbell();
/// Adds one; without effect when it is as full as can be (it is ringing then). Async-signal-safe.
void ring(const Fd& doorbell);
/// Stops it ringing.
void silence(const Fd& doorbell);

}  // namespace baton::shmem
