// Pages before they are needed.
//
// A page of a segment exists once somebody has touched it, and a process that writes to it first
// takes a fault for every 4 KiB (measured: a copy into fresh pages runs at 1.25 GB/s, into pages
// that exist but aren't in the writer's page table at 2.75, into warm ones at 8). Linux doesn't put
// huge pages behind a memfd by default, so a thread does it in the background.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "shmem/shm/segment.h"

namespace baton::shmem {

/// Makes the pages of segments exist and puts them into this process's page table, one segment
/// after the other, with pauses (2 GiB take some seconds). Thread-safe.
class Warmer {
 public:
  Warmer();
  ~Warmer();  ///< stops after at most 2 MiB more
  Warmer(const Warmer&) = delete;
  Warmer& operator=(const Warmer&) = delete;

  /// Does nothing for a segment that was added before, by whatever Warmer. One that nobody else
  /// holds any more is left as it is.
  void add(const std::shared_ptr<const Segment>& segment);

 private:
  void run();
  void pause();
  [[nodiscard]] bool stopped();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::weak_ptr<const Segment>> queue_;
  bool stop_ = false;
  std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace baton::shmem
