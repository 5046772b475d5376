// One connection on its way from "somebody is there" to a member (the protocol is in wire.h), as a
// state machine that never blocks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "shmem/shm/endpoint.h"
#include "shmem/shm/members.h"
#include "shmem/shm/wire.h"

namespace baton::shmem {

/// What a handshake asks of its surroundings; outlives it.
struct HandshakeContext {
  const Hello& self;
  const Segment& segment;
  const Fd& doorbell;
  /// May this one come in? `dialled`: this side has opened the connection.
  std::function<std::optional<Refusal>(const Hello& hello, bool dialled)> judge;
  /// A ticket for a process that is about to get this member's memory; from now on its death is
  /// watched for.
  std::function<uint64_t(const std::shared_ptr<Process>&)> issue_ticket;
};

/// Owned and used by the heap's thread.
class Handshake {
 public:
  enum class Outcome {
    kUnderWay,
    kJoined,   ///< take_member(), take_socket()
    kRefused,  ///< by one of the two: refusal()
    kCut,      ///< the other end went away
  };
  /// `dialled_pe`: where this side has connected to; -1 = the other side did.
  Handshake(const HandshakeContext& context, Fd socket, int dialled_pe);

  /// Checks who is there; says hello if it was this side that connected.
  [[nodiscard]] Outcome start();
  /// Takes what has arrived.
  [[nodiscard]] Outcome on_readable();

  [[nodiscard]] const Fd& socket() const { return socket_; }
  [[nodiscard]] int dialled_pe() const { return dialled_pe_; }
  /// The other one's first PE as far as it is known, else -1.
  [[nodiscard]] int peer_pe() const { return hello_ ? hello_->first_pe : dialled_pe_; }
  [[nodiscard]] const Refusal& refusal() const { return refusal_; }
  [[nodiscard]] bool refused_by_peer() const { return refused_by_peer_; }
  [[nodiscard]] const std::shared_ptr<Process>& process() const { return process_; }
  [[nodiscard]] std::shared_ptr<const Member> take_member() { return std::move(member_); }
  [[nodiscard]] Fd take_socket() { return std::move(socket_); }

 private:
  [[nodiscard]] Outcome refuse(Refusal refusal);
  [[nodiscard]] Outcome malformed(std::string text);
  [[nodiscard]] Outcome take(Packet packet);
  [[nodiscard]] Outcome take_hello(Hello hello);
  [[nodiscard]] Outcome take_grant(const Grant& grant, std::vector<Fd> fds);
  [[nodiscard]] bool send_hello();
  [[nodiscard]] bool send_grant();

  const HandshakeContext& context_;
  Fd socket_;
  int dialled_pe_;
  std::shared_ptr<Process> process_;
  std::optional<Hello> hello_;  ///< the other one's; set = its grant is awaited
  std::shared_ptr<const Member> member_;
  Refusal refusal_;
  bool refused_by_peer_ = false;
};

}  // namespace baton::shmem
