// The router's own queue: engines hold at most a step or two of work, so that decisions are made
// late and cancelling is cheap.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>

#include "base/ids.h"

namespace baton::router {

/// Order of service: priority (lower first), arrival, then order of creation. An attempt that comes
/// back keeps its request's arrival and so stands at the head again.
struct QueueEntry {
  int priority = 0;
  int64_t arrival_ns = 0;
  RequestId id;  ///< of the attempt
  bool operator<(const QueueEntry& other) const {
    return std::tie(priority, arrival_ns, id) <
           std::tie(other.priority, other.arrival_ns, other.id);
  }
};

using Queue = std::set<QueueEntry>;

}  // namespace baton::router
