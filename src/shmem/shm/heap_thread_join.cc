// HeapThread: who is called, who may come in, and when the join is over.
#include <algorithm>

#include "base/log.h"
#include "shmem/shm/heap_thread.h"

namespace baton::shmem {
namespace {

constexpr int64_t kAcceptedDeadlineNs = 10'000'000'000;  ///< for those who connect and say nothing
constexpr int kRedials = 40;                             ///< one in 50 ms: for 2 s

}  // namespace

Status HeapThread::wait_joined(std::chrono::milliseconds timeout) {
  std::unique_lock lock(join_mutex_);
  join_changed_.wait_for(lock, timeout, [&] { return join_over_; });
  Status status = join_result_locked(timeout);
  joining_ = false;
  ring(wake_);
  return status;
}

Status HeapThread::join_result_locked(std::chrono::milliseconds timeout) const {
  if (join_error_) return tl::unexpected(*join_error_);
  if (join_over_) return {};
  const auto give_up = [&](std::string what, const std::string& problem) -> Status {
    std::string text = fmt::format("{}: joining world {}: {}", describe(self_), world_.uid, what);
    if (!problem.empty()) text += fmt::format(" (last problem: {})", problem);
    return tl::unexpected(Error{ErrorCode::kUnavailable, std::move(text), false});
  };
  if (world_.join == Join::kLater) {
    if (overlaps_.empty()) return {};
    return give_up(fmt::format("refused for {} ms", timeout.count()), overlaps_.begin()->second);
  }
  if (members_.missing().empty()) return {};
  const std::string missing = members_.missing(came_and_left_);
  std::string what;
  if (!missing.empty()) {
    what = fmt::format("nobody came for {} within {} ms", missing, timeout.count());
  }
  // Others may have given up just before this one: they are not who is missing.
  for (const Hello& hello : came_and_left_) {
    if (members_.find({hello.first_pe})) continue;
    what += fmt::format("{}{} came, but has left", what.empty() ? "" : "; ", describe(hello));
  }
  return give_up(std::move(what), last_problem_);
}

void HeapThread::finish_join(std::optional<Error> error) {
  const std::lock_guard lock(join_mutex_);
  if (join_over_) return;
  join_over_ = true;
  join_error_ = std::move(error);
  join_changed_.notify_all();
}

void HeapThread::check_joined() {
  if (!joining_) return;
  if (world_.join == Join::kFirst) {
    if (members_.missing().empty()) finish_join(std::nullopt);
    return;
  }
  const bool calling = std::any_of(pending_.begin(), pending_.end(), [](const Pending& pending) {
    return pending.handshake->dialled_pe() >= 0;
  });
  if (!calling && redials_.empty()) {
    const std::unique_lock lock(join_mutex_);
    if (!overlaps_.empty()) return;
  }
  if (!calling && redials_.empty()) finish_join(std::nullopt);
}

bool HeapThread::wants_to_dial(int pe) const {
  if (members_.find(Pe{pe})) return false;
  return std::none_of(pending_.begin(), pending_.end(),
                      [&](const Pending& pending) { return pending.handshake->peer_pe() == pe; });
}

void HeapThread::dial_all() {
  for (int pe = 0; pe < world_.npes; ++pe) {
    if (wants_to_dial(pe)) dial_one(pe);
  }
}

void HeapThread::dial_one(int pe) {
  Fd fd = dial(socket_name(world_.uid, pe));
  if (fd.valid()) add_pending(std::move(fd), pe);
}

void HeapThread::add_pending(Fd socket, int dialled_pe) {
  auto handshake = std::make_unique<Handshake>(context_, std::move(socket), dialled_pe);
  if (conclude(*handshake, handshake->start())) return;
  // One that was called and is stopped answers when it goes on: no deadline.
  const int64_t deadline = dialled_pe < 0 ? clock_.now_ns() + kAcceptedDeadlineNs : INT64_MAX;
  pending_.push_back({std::move(handshake), deadline});
}

bool HeapThread::conclude(Handshake& handshake, Handshake::Outcome outcome) {
  switch (outcome) {
    case Handshake::Outcome::kUnderWay:
      return false;
    case Handshake::Outcome::kJoined:
      conclude_joined(handshake);
      break;
    case Handshake::Outcome::kRefused:
      conclude_refused(handshake);
      break;
    case Handshake::Outcome::kCut:
      if (!handshake.refusal().text.empty()) note_problem(handshake, handshake.refusal().text);
      if (handshake.dialled_pe() >= 0) redials_.try_emplace(handshake.dialled_pe(), kRedials);
      break;
  }
  return true;
}

void HeapThread::conclude_joined(Handshake& handshake) {
  auto member = handshake.take_member();
  spdlog::info("heap: {} has joined world {} (pid {}, incarnation {})", describe(member->hello),
               world_.uid, member->pid, member->hello.incarnation);
  redials_.erase(member->hello.first_pe);
  {
    const std::lock_guard lock(join_mutex_);
    overlaps_.erase(member->hello.first_pe);
  }
  members_.add(member);
  joined_.push_back({handshake.take_socket(), std::move(member)});
  news_ = true;
}

void HeapThread::conclude_refused(const Handshake& handshake) {
  const Refusal& refusal = handshake.refusal();
  if (refusal.code == Refusal::Code::kDuplicate) return;
  note_problem(handshake, refusal.text);
  if (!joining_ || refusal.code == Refusal::Code::kMalformed) return;
  const bool first = world_.join == Join::kFirst;
  const bool called = handshake.dialled_pe() >= 0;
  if (first ||
      (refusal.code == Refusal::Code::kMismatch && (called || handshake.refused_by_peer()))) {
    // The first join can't become complete any more; a later one is not wanted here.
    finish_join(Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{}: joining world {}: {}", describe(self_), world_.uid, refusal.text), false});
  } else if (called && refusal.code == Refusal::Code::kOverlap) {
    redials_.try_emplace(handshake.dialled_pe(), kRedials);
    const std::lock_guard lock(join_mutex_);
    overlaps_[handshake.dialled_pe()] = refusal.text;
  }
}

void HeapThread::note_problem(const Handshake& handshake, const std::string& text) {
  spdlog::warn("heap: a connection {} pid {} came to nothing: {}",
               handshake.dialled_pe() >= 0 ? "to" : "from",
               handshake.process() ? handshake.process()->pid : 0, text);
  const std::lock_guard lock(join_mutex_);
  last_problem_ = text;
}

std::optional<Refusal> HeapThread::judge(const Hello& hello, bool dialled) {
  if (auto refusal = compare(self_, hello)) return refusal;
  const bool calling_it = std::any_of(
      pending_.begin(), pending_.end(),
      [&](const Pending& pending) { return pending.handshake->dialled_pe() == hello.first_pe; });
  if (!dialled && calling_it && self_.first_pe < hello.first_pe) {
    return Refusal{Refusal::Code::kDuplicate, "another connection counts"};
  }
  for (const auto& member : members_.all()) {
    if (!overlap(member->hello, hello)) continue;
    if (member->hello.first_pe == hello.first_pe &&
        member->hello.incarnation == hello.incarnation) {
      return Refusal{Refusal::Code::kDuplicate, "another connection counts"};
    }
    if (!has_left(*member)) return compare(member->hello, hello);
    depart(*member);
  }
  return std::nullopt;
}

uint64_t HeapThread::issue_ticket(const std::shared_ptr<Process>& process) {
  // One for each process: however often it comes, it costs one descriptor.
  for (const Watch& watch : watches_) {
    if (watch.process->pid == process->pid && !watch.process->dead()) return watch.ticket;
  }
  watches_.push_back({++last_ticket_, process});
  return watches_.back().ticket;
}

bool HeapThread::has_left(const Member& member) const {
  return std::any_of(joined_.begin(), joined_.end(), [&](const Joined& joined) {
    return joined.member.get() == &member && hung_up(joined.socket);
  });
}

void HeapThread::depart(const Member& member) {
  spdlog::info("heap: {} has left world {} (pid {}, incarnation {})", describe(member.hello),
               world_.uid, member.pid, member.hello.incarnation);
  const auto it = std::find_if(joined_.begin(), joined_.end(), [&](const Joined& joined) {
    return joined.member.get() == &member;
  });
  if (it == joined_.end()) return;
  if (joining_) {
    // First: whoever doesn't see it as a member any more must know that it came.
    const std::lock_guard lock(join_mutex_);
    came_and_left_.push_back(member.hello);
  }
  members_.remove(it->member);
  joined_.erase(it);
  news_ = true;
}

}  // namespace baton::shmem
