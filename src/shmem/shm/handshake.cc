#include "shmem/shm/handshake.h"

#include <array>

namespace baton::shmem {

Handshake::Handshake(const HandshakeContext& context, Fd socket, int dialled_pe)
    : context_(context), socket_(std::move(socket)), dialled_pe_(dialled_pe) {}

Handshake::Outcome Handshake::refuse(Refusal refusal) {
  refusal_ = std::move(refusal);
  // If it can't be told, the end of the connection tells it.
  (void)send_packet(socket_, encode(refusal_));
  return Outcome::kRefused;
}

Handshake::Outcome Handshake::malformed(std::string text) {
  return refuse({Refusal::Code::kMalformed, std::move(text)});
}

bool Handshake::send_hello() { return send_packet(socket_, encode(context_.self)).has_value(); }

bool Handshake::send_grant() {
  const Grant grant{context_.issue_ticket(process_)};
  const std::array<int, 2> fds{context_.segment.fd(), context_.doorbell.get()};
  return send_packet(socket_, encode(grant), fds).has_value();
}

Handshake::Outcome Handshake::start() {
  auto process = peer_process(socket_);
  if (!process) {
    refusal_ = {Refusal::Code::kMalformed, process.error().message};
    return Outcome::kCut;
  }
  process_ = std::move(*process);
  return dialled_pe_ < 0 || send_hello() ? Outcome::kUnderWay : Outcome::kCut;
}

Handshake::Outcome Handshake::on_readable() {
  while (true) {
    auto packet = receive_packet(socket_);
    if (!packet) {
      if (packet.error().code == ErrorCode::kUnavailable) return Outcome::kCut;
      return malformed(packet.error().message);
    }
    if (!*packet) return Outcome::kUnderWay;
    const Outcome outcome = take(std::move(**packet));
    if (outcome != Outcome::kUnderWay) return outcome;
  }
}

Handshake::Outcome Handshake::take(Packet packet) {
  auto message = parse_message(packet.bytes);
  if (!message) {
    const bool other_version = message.error().code == ErrorCode::kUnsupported;
    return refuse({other_version ? Refusal::Code::kMismatch : Refusal::Code::kMalformed,
                   message.error().message});
  }
  if (auto* refusal = std::get_if<Refusal>(&*message)) {
    refusal_ = std::move(*refusal);
    refused_by_peer_ = true;
    return Outcome::kRefused;
  }
  if (auto* hello = std::get_if<Hello>(&*message); hello && !hello_ && packet.fds.empty()) {
    return take_hello(std::move(*hello));
  }
  if (const auto* grant = std::get_if<Grant>(&*message); grant && hello_) {
    return take_grant(*grant, std::move(packet.fds));
  }
  return malformed("message of a peer: out of turn");
}

Handshake::Outcome Handshake::take_hello(Hello hello) {
  if (dialled_pe_ >= 0 && hello.first_pe != dialled_pe_) {
    return malformed(fmt::format("the member that listens for PE {} says it starts at PE {}",
                                 dialled_pe_, hello.first_pe));
  }
  if (auto refusal = context_.judge(hello, dialled_pe_ >= 0)) return refuse(std::move(*refusal));
  hello_ = std::move(hello);
  const bool sent = dialled_pe_ >= 0 ? send_grant() : send_hello();
  return sent ? Outcome::kUnderWay : Outcome::kCut;
}

Handshake::Outcome Handshake::take_grant(const Grant& grant, std::vector<Fd> fds) {
  if (fds.size() != 2) {
    return malformed(fmt::format("message of a peer: {} descriptors, expected 2", fds.size()));
  }
  auto segment = Segment::map(fds[0], hello_->shape);
  if (!segment) return malformed(segment.error().message);
  if (auto status = check_doorbell(fds[1]); !status) return malformed(status.error().message);
  // Somebody else may have taken the place since.
  if (auto refusal = context_.judge(*hello_, dialled_pe_ >= 0)) return refuse(std::move(*refusal));
  if (dialled_pe_ < 0 && !send_grant()) return Outcome::kCut;
  member_ = std::make_shared<const Member>(
      Member{.hello = *hello_,
             .pid = process_->pid,
             .segment = std::move(*segment),
             .doorbell = std::make_shared<const Fd>(std::move(fds[1])),
             .ticket = grant.ticket});
  return Outcome::kJoined;
}

}  // namespace baton::shmem
