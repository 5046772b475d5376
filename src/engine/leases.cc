#include "engine/leases.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace baton::engine {
namespace {

// A sender's progress is looked at so often in the time of a lease: an idle engine wakes up for it.
constexpr int64_t kLooksPerLease = 8;
/// … and at least so often, so that an engine that waits for KV is seen to be alive.
constexpr int64_t kMaxQuietNs = int64_t{10} * 1'000'000'000;
// The end of a put rings no bell, so an idle engine looks after the quarantine by itself.
constexpr int64_t kReapNs = 50'000'000;

size_t block_index(int n_tokens) { return static_cast<size_t>(n_tokens / kv::kBlockTokens); }

}  // namespace

Leases::~Leases() {
  for (const auto& [id, lease] : leases_) {
    if (lease.window) heap_.close_window(*lease.window);
  }
}

Result<LeaseId> Leases::open(Lease lease, int64_t now_ns) {
  if (lease.room.n_matched < lease.end) {
    auto window = heap_.open_window();
    if (!window) {
      cache_.release(lease.room.table);
      return tl::unexpected(Error{ErrorCode::kExhausted, window.error().message, true});
    }
    lease.window = *window;
    lease.progress = heap_.progress(*window);
  }
  cache_.mark_leased(lease.room.table);
  lease.looked_ns = now_ns;
  lease.expires_ns = now_ns + lease.lease_ns;
  const LeaseId id{++last_id_};
  leases_.emplace(id, std::move(lease));
  return id;
}

Lease* Leases::find(LeaseId id) {
  const auto it = leases_.find(id);
  return it == leases_.end() ? nullptr : &it->second;
}

bool Leases::arrived(Lease& lease) {
  if (!lease.window) return true;
  if (!heap_.signalled(*lease.window)) return false;
  heap_.close_window(*lease.window);
  if (!heap_.quiet(*lease.window)) return false;
  heap_.free_window(*lease.window);
  lease.window.reset();
  return true;
}

bool Leases::shut(Lease& lease) {
  if (!lease.window) return true;
  const shmem::Window window = *std::exchange(lease.window, std::nullopt);
  heap_.close_window(window);
  if (heap_.quiet(window)) {
    heap_.free_window(window);
    return true;
  }
  std::vector<BlockId>& table = lease.room.table;
  const auto begin = table.begin() + static_cast<std::ptrdiff_t>(block_index(lease.room.n_matched));
  const auto end = table.begin() + static_cast<std::ptrdiff_t>(block_index(lease.end));
  quarantine_.push_back({window, {begin, end}});
  // What comes behind them is of no use without them.
  free({end, table.end()});
  table.erase(begin, table.end());
  return false;
}

Room Leases::take(LeaseId id) {
  const auto it = leases_.find(id);
  BATON_CHECK(it != leases_.end());
  (void)shut(it->second);
  Room room = std::move(it->second.room);
  cache_.unmark_leased(room.table);
  leases_.erase(it);
  return room;
}

void Leases::close(LeaseId id) {
  const Room room = take(id);
  cache_.release(room.table);
}

void Leases::free(std::span<const BlockId> blocks) {
  cache_.unmark_leased(blocks);
  cache_.release(blocks);
}

void Leases::look(Lease& lease, int64_t now_ns) {
  if (lease.window) {
    const uint64_t progress = heap_.progress(*lease.window);
    // It was made after the look before: from then on counts the time, so that a lease is never
    // held for longer than its time after the last sign of life.
    if (progress != lease.progress) lease.expires_ns = lease.looked_ns + lease.lease_ns;
    lease.progress = progress;
  }
  lease.looked_ns = now_ns;
}

std::vector<LeaseId> Leases::poll(int64_t now_ns) {
  std::erase_if(quarantine_, [&](const Quarantined& item) {
    if (!heap_.quiet(item.window)) return false;
    heap_.free_window(item.window);
    free(item.blocks);
    return true;
  });
  std::vector<LeaseId> expired;
  for (auto& [id, lease] : leases_) {
    look(lease, now_ns);
    if (now_ns >= lease.expires_ns) expired.push_back(id);
  }
  return expired;
}

std::optional<int64_t> Leases::next_poll_ns(int64_t now_ns) const {
  std::optional<int64_t> next;
  const auto at = [&](int64_t time_ns) { next = std::min(next.value_or(time_ns), time_ns); };
  if (!quarantine_.empty()) at(now_ns + kReapNs);
  for (const auto& [id, lease] : leases_) {
    at(std::min(lease.expires_ns,
                lease.looked_ns + std::min(lease.lease_ns / kLooksPerLease, kMaxQuietNs)));
  }
  return next;
}

}  // namespace baton::engine
