#include "server/session.h"

#include <algorithm>
#include <utility>

#include "api/microserving.h"
#include "base/log.h"

namespace baton::server {
namespace {

/// Older ones run out by themselves: a limit for a router that never uses what it asks for.
constexpr size_t kMaxLeases = 1024;

}  // namespace

Session::Session(Options options, std::shared_ptr<net::HttpExchange> exchange,
                 engine::Engine& engine)
    : options_(std::move(options)), exchange_(std::move(exchange)), engine_(engine) {}

Status Session::begin(RequestId theirs, RequestId ours, std::vector<int> choices) {
  const std::lock_guard lock(mutex_);
  if (closed_) return fail(ErrorCode::kNotFound, "session '{}' has ended", options_.id);
  Running running{ours, {choices.begin(), choices.end()}};
  if (!running_.emplace(theirs, std::move(running)).second) {
    return fail(ErrorCode::kInvalidArgument, "'id' {} is in use in this session", theirs.value);
  }
  return {};
}

void Session::forget(RequestId theirs) {
  const std::lock_guard lock(mutex_);
  running_.erase(theirs);
}

void Session::cancel(RequestId theirs, std::optional<int> choice) {
  RequestId ours;
  {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(theirs);
    if (found == running_.end()) return;
    ours = found->second.ours;
    if (choice && found->second.choices.erase(*choice) == 0) return;
    if (!choice || found->second.choices.empty()) running_.erase(found);
  }
  engine_.cancel(ours, choice);
}

bool Session::add_lease(LeaseId lease) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  leases_.push_back(lease);
  if (leases_.size() > kMaxLeases) leases_.pop_front();
  return true;
}

void Session::drop_lease(LeaseId lease) {
  const std::lock_guard lock(mutex_);
  leases_.erase(std::remove(leases_.begin(), leases_.end(), lease), leases_.end());
}

bool Session::add(RequestId theirs, RequestUpdate update) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(theirs);
  if (closed_ || found == running_.end()) return false;  // cancelled in the meantime
  for (const TokenEvent& event : update.events) {
    if (event.finish) found->second.choices.erase(event.choice);
  }
  if (found->second.choices.empty()) running_.erase(found);
  update.id = theirs;
  outbox_.push_back(std::move(update));
  return outbox_.size() == 1;
}

void Session::flush() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || outbox_.empty()) return;
  }
  post_drain();
}

void Session::beat() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || !std::exchange(quiet_, true)) return;
  }
  post_drain();
}

void Session::tell_state() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || options_.one_request) return;
  }
  post_drain();
}

void Session::end() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    ending_ = true;
  }
  post_drain();
}

void Session::post_drain() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(drain_posted_, true)) return;
  }
  // JSON is written on the connection's thread: the engine's has better things to do.
  exchange_->post([self = shared_from_this()] { self->drain(); });
}

void Session::drain() {
  api::Frame frame;
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    drain_posted_ = false;
    if (closed_) return;
    frame.updates.swap(outbox_);
    quiet_ = false;
    last = ending_ || (options_.one_request && running_.empty());
  }
  frame.state = options_.state();
  exchange_->write(api::write_frame(frame));
  if (!last) return;
  exchange_->end();
  close();
}

void Session::close() {
  std::map<RequestId, Running> running;
  std::deque<LeaseId> leases;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    running.swap(running_);
    leases.swap(leases_);
    outbox_.clear();
  }
  for (const auto& [theirs, one] : running) engine_.cancel(one.ours);
  for (const LeaseId lease : leases) engine_.release(lease);
  if (!options_.one_request) {
    spdlog::info("router '{}' has gone: {} requests cancelled, {} leases released", options_.router,
                 running.size(), leases.size());
  }
}

bool Session::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace baton::server
