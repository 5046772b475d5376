#include "testing/faulty_heap.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace baton::testing {

using shmem::Piece;
using shmem::Target;

namespace {

bool same_window(const Target& a, const Target& b) {
  return a.pe == b.pe && a.incarnation == b.incarnation && a.window.slot == b.window.slot &&
         a.window.tag == b.window.tag;
}

}  // namespace

FaultyHeap::FaultyHeap(Heap& inner, Script script, std::function<void()> kill)
    : inner_(inner), kill_(std::move(kill)), script_(std::move(script)) {
  thread_ = std::thread([this] { deliver(); });
}

FaultyHeap::~FaultyHeap() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void FaultyHeap::set_script(Script script) {
  const std::lock_guard lock(mutex_);
  script_ = std::move(script);
}

int FaultyHeap::n_waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(waiting_.size());
}

Status FaultyHeap::put(const Target& target, std::span<const Piece> pieces) {
  HeapOperation operation{.kind = HeapOperation::Kind::kPut, .target = target};
  for (const Piece& piece : pieces) operation.n_bytes += piece.bytes.size();
  return run(operation, pieces);
}

Status FaultyHeap::signal(const Target& target) {
  return run({.kind = HeapOperation::Kind::kSignal, .target = target}, {});
}

Status FaultyHeap::apply(const HeapOperation& operation, std::span<const Piece> pieces) {
  return operation.kind == HeapOperation::Kind::kPut ? inner_.put(operation.target, pieces)
                                                     : inner_.signal(operation.target);
}

Status FaultyHeap::run(const HeapOperation& asked, std::span<const Piece> pieces) {
  HeapOperation operation = asked;
  std::unique_lock lock(mutex_);
  operation.number = n_operations_++;
  const HeapFault fault = script_ ? script_(operation) : HeapFault{};
  using Kind = HeapFault::Kind;
  if (fault.kind == Kind::kDrop) return {};
  if (fault.kind == Kind::kFail || fault.kind == Kind::kKill) {
    lock.unlock();
    if (fault.kind == Kind::kKill && kill_) kill_();
    return fail(ErrorCode::kUnavailable, "injected fault in operation {} of a heap",
                operation.number);
  }
  const bool behind =
      !fault.overtake && std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& w) {
        return same_window(w.operation.target, operation.target);
      });
  if (fault.kind == Kind::kPass && !behind) {
    lock.unlock();
    return apply(operation, pieces);
  }
  Waiting waiting;
  waiting.operation = operation;
  waiting.overtake = fault.overtake;
  for (const Piece& piece : pieces) {
    waiting.bytes.emplace_back(piece.bytes.begin(), piece.bytes.end());
    waiting.pieces.push_back({piece.offset, waiting.bytes.back()});
  }
  if (fault.kind != Kind::kHold) waiting.due = std::chrono::steady_clock::now() + fault.delay;
  waiting_.push_back(std::move(waiting));
  changed_.notify_all();
  return {};
}

bool FaultyHeap::waits_behind(Place place) const {
  return !place->overtake &&
         std::any_of(waiting_.begin(), std::list<Waiting>::const_iterator(place),
                     [&](const Waiting& earlier) {
                       return same_window(earlier.operation.target, place->operation.target);
                     });
}

FaultyHeap::Place FaultyHeap::find_due(Time now) {
  for (auto place = waiting_.begin(); place != waiting_.end(); ++place) {
    if (!place->being_done && place->due && *place->due <= now && !waits_behind(place)) {
      return place;
    }
  }
  return waiting_.end();
}

Status FaultyHeap::finish(std::unique_lock<std::mutex>& lock, Place place) {
  place->being_done = true;
  lock.unlock();
  Status status = apply(place->operation, place->pieces);
  lock.lock();
  waiting_.erase(place);
  changed_.notify_all();
  return status;
}

void FaultyHeap::deliver() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const auto now = std::chrono::steady_clock::now();
    const auto place = find_due(now);
    if (place != waiting_.end()) {
      // What became of it is nobody's business any more: it was reported as done.
      (void)finish(lock, place);
      continue;
    }
    auto next = Time::max();
    for (const Waiting& waiting : waiting_) {
      // One that is due already waits for another, whose end is notified.
      if (waiting.due && *waiting.due > now) next = std::min(next, *waiting.due);
    }
    if (next == Time::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, next);
    }
  }
}

Status FaultyHeap::release(int index) {
  std::unique_lock lock(mutex_);
  BATON_CHECK(index >= 0 && index < static_cast<int>(waiting_.size()), "{} of {} waiting", index,
              waiting_.size());
  const auto place = std::next(waiting_.begin(), index);
  BATON_CHECK(!place->being_done, "operation {} is being done", place->operation.number);
  return finish(lock, place);
}

int FaultyHeap::release_all() {
  std::unique_lock lock(mutex_);
  int n_refused = 0;
  const auto next = [&] {
    return std::find_if(waiting_.begin(), waiting_.end(),
                        [](const Waiting& waiting) { return !waiting.being_done; });
  };
  for (auto place = next(); place != waiting_.end(); place = next()) {
    n_refused += !finish(lock, place);
  }
  return n_refused;
}

int FaultyHeap::release_all_reversed() {
  std::unique_lock lock(mutex_);
  int n_refused = 0;
  const auto last = [&] {
    return std::find_if(waiting_.rbegin(), waiting_.rend(),
                        [](const Waiting& waiting) { return !waiting.being_done; });
  };
  for (auto place = last(); place != waiting_.rend(); place = last()) {
    n_refused += !finish(lock, std::prev(place.base()));
  }
  return n_refused;
}

}  // namespace baton::testing
