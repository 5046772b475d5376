// One thread beside the I/O threads, for work that would keep other connections waiting.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace baton::frontend {

/// Runs tasks one after another, in the order they were added. Thread-safe.
/// Lifecycle: the destructor waits for the task that runs and drops, unrun, those that wait.
class Worker {
 public:
  Worker() : thread_([this] { run(); }) {}
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Queues the task; the result names it for drop(). An exception that leaves it is logged.
  uint64_t add(std::function<void()> task);
  /// Forgets the task, and what it holds, if it has not begun.
  void drop(uint64_t ticket);

 private:
  void run();

  std::mutex mutex_;  ///< guards what follows
  std::condition_variable news_;
  std::map<uint64_t, std::function<void()>> tasks_;  ///< those that wait, by ticket
  uint64_t next_ticket_ = 0;
  bool stop_ = false;

  std::thread thread_;  ///< last: it uses all the others
};

}  // namespace baton::frontend
