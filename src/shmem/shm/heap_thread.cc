#include "shmem/shm/heap_thread.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/log.h"
#include "base/service_thread.h"

namespace baton::shmem {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kTickNs = 50 * kMs;
constexpr int64_t kOutOfFdsPauseNs = 100 * kMs;
constexpr size_t kMaxPending = 2 * kMaxPes;

}  // namespace

HeapThread::HeapThread(Parts parts, Fd listening, Fd wake)
    : world_(std::move(parts.world)),
      self_(std::move(parts.self)),
      segment_(std::move(parts.segment)),
      doorbell_(std::move(parts.doorbell)),
      members_(parts.members),
      windows_(parts.windows),
      listening_(std::move(listening)),
      wake_(std::move(wake)),
      context_{
          .self = self_,
          .segment = *segment_,
          .doorbell = *doorbell_,
          .judge = [this](const Hello& hello, bool dialled) { return judge(hello, dialled); },
          .issue_ticket =
              [this](const std::shared_ptr<Process>& process) { return issue_ticket(process); }} {
  // Signals are for the process's own threads: the new one inherits that all are blocked.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = service_thread("baton-heap", [this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

HeapThread::~HeapThread() {
  stop_ = true;
  ring(wake_);
  thread_.join();
}

void HeapThread::set_listener(std::function<void()> listener) {
  {
    const std::lock_guard lock(listener_mutex_);
    listener_ = std::move(listener);
  }
  call_listener_ = true;
  ring(wake_);
}

void HeapThread::run() {
  dial_all();
  next_tick_ns_ = clock_.now_ns() + kTickNs;
  while (!stop_) {
    check_joined();
    wait_for_events();
    // What has ended before what begins, so that a member that comes back finds its place free.
    handle_deaths();
    handle_departures();
    handle_pending();
    handle_accepts();
    handle_timers();
    if (rang_) {
      silence(*doorbell_);
      news_ = true;
    }
    if (call_listener_.exchange(false) || news_) call_listener();
  }
}

void HeapThread::call_listener() {
  news_ = false;
  const std::lock_guard lock(listener_mutex_);
  if (listener_) listener_();
}

void HeapThread::wait_for_events() {
  const int64_t now = clock_.now_ns();
  polled_.assign({{wake_.get(), POLLIN, 0},
                  {doorbell_->get(), POLLIN, 0},
                  {now < accept_after_ns_ ? -1 : listening_.get(), POLLIN, 0}});
  const auto add = [&](const Fd& fd) { polled_.push_back({fd.get(), POLLIN, 0}); };
  for (const Joined& joined : joined_) add(joined.socket);
  for (const Pending& pending : pending_) add(pending.handshake->socket());
  for (const Watch& watch : watches_) add(watch.process->pidfd);
  const bool any = poll(polled_.data(), polled_.size(), poll_timeout_ms()) > 0;
  auto entry = polled_.begin();
  const auto next_ready = [&] { return (entry++)->revents != 0 && any; };
  if (next_ready()) silence(wake_);
  rang_ = next_ready();
  can_accept_ = next_ready();
  for (Joined& joined : joined_) joined.ready = next_ready();
  for (Pending& pending : pending_) pending.ready = next_ready();
  for (Watch& watch : watches_) watch.ready = next_ready();
}

int HeapThread::poll_timeout_ms() const {
  int64_t next = INT64_MAX;
  if (joining_ || !redials_.empty()) next = next_tick_ns_;
  const int64_t now = clock_.now_ns();
  if (now < accept_after_ns_) next = std::min(next, accept_after_ns_);
  for (const Pending& pending : pending_) next = std::min(next, pending.deadline_ns);
  if (next == INT64_MAX) return -1;
  return static_cast<int>(std::clamp<int64_t>((next - now + kMs - 1) / kMs, 0, 60'000));
}

void HeapThread::handle_deaths() {
  for (const Watch& watch : watches_) {
    if (!watch.ready) continue;
    // A writer that is dead must not keep a window from being quiet.
    windows_.evict(watch.ticket);
    news_ = true;
  }
  std::erase_if(watches_, [](const Watch& watch) { return watch.ready; });
}

void HeapThread::handle_departures() {
  // A member that dies closes its sockets before its pidfd tells of the death: this is the earliest
  // sign. Nothing is ever said on these connections.
  std::vector<std::shared_ptr<const Member>> left;
  for (const Joined& joined : joined_) {
    if (joined.ready) left.push_back(joined.member);
  }
  for (const auto& member : left) depart(*member);
}

void HeapThread::handle_pending() {
  std::vector<const Handshake*> over;
  // Concluding one may change joined_ and watches_, never pending_.
  for (Pending& pending : pending_) {
    Handshake& handshake = *pending.handshake;
    if (pending.ready && conclude(handshake, handshake.on_readable())) over.push_back(&handshake);
  }
  const int64_t now = clock_.now_ns();
  std::erase_if(pending_, [&](const Pending& pending) {
    return now >= pending.deadline_ns ||
           std::find(over.begin(), over.end(), pending.handshake.get()) != over.end();
  });
}

void HeapThread::handle_accepts() {
  if (!can_accept_) return;
  while (pending_.size() < kMaxPending) {
    Fd fd = accept_one(listening_);
    if (fd.valid()) {
      add_pending(std::move(fd), -1);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno != ECONNABORTED && errno != EINTR) break;
  }
  // No descriptors left, or a flood of connections: poll would only say at once that one waits.
  accept_after_ns_ = clock_.now_ns() + kOutOfFdsPauseNs;
}

void HeapThread::handle_timers() {
  const int64_t now = clock_.now_ns();
  if (now < next_tick_ns_) return;
  next_tick_ns_ = now + kTickNs;
  for (auto it = redials_.begin(); it != redials_.end();) {
    const bool again = wants_to_dial(it->first);
    if (again) dial_one(it->first);
    it = --it->second <= 0 ? redials_.erase(it) : std::next(it);
  }
  if (joining_ && world_.join == Join::kFirst) dial_all();
}

}  // namespace baton::shmem
