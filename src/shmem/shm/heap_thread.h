// The one thread of a heap: meets the other members, notices their deaths, hears the doorbell.
// Sleeps in poll; takes no part in puts.
//
// Each member listens on an abstract Unix socket named by the world's uid and its own first PE, and
// only then tries all other names: of two members, the later one finds the earlier one. If both
// find each other, the connection that the lower PE opened is the one that counts, and the lower
// one decides so.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "shmem/shm/handshake.h"
#include "shmem/shm/members.h"
#include "shmem/shm/windows.h"
#include "shmem/world.h"

namespace baton::shmem {

/// Owner of the thread and of all connections. Public methods are thread-safe.
class HeapThread {
 public:
  struct Parts {
    WorldConfig world;
    Hello self;
    std::shared_ptr<const Segment> segment;
    std::shared_ptr<const Fd> doorbell;
    MemberTable& members;
    WindowTable& windows;
  };
  /// `listening`: at the member's own name. `wake`: an eventfd.
  HeapThread(Parts parts, Fd listening, Fd wake);
  ~HeapThread();

  /// kFirst: until all PEs have their member, else an error that names those without. kLater: until
  /// those who are there have been met, for `timeout` at most.
  [[nodiscard]] Status wait_joined(std::chrono::milliseconds timeout);

  void set_listener(std::function<void()> listener);

 private:
  // `ready`: the last poll saw something.
  struct Joined {
    Fd socket;
    std::shared_ptr<const Member> member;
    bool ready = false;
  };
  struct Pending {
    std::unique_ptr<Handshake> handshake;
    int64_t deadline_ns = INT64_MAX;
    bool ready = false;
  };
  struct Watch {
    uint64_t ticket = 0;
    std::shared_ptr<Process> process;
    bool ready = false;
  };

  void run();
  void wait_for_events();
  [[nodiscard]] int poll_timeout_ms() const;
  void handle_deaths();
  void handle_departures();
  void handle_pending();
  void handle_accepts();
  void handle_timers();
  void call_listener();

  // Of heap_thread_join.cc:
  void dial_all();
  [[nodiscard]] bool wants_to_dial(int pe) const;
  void dial_one(int pe);
  /// True = it is over, one way or the other.
  [[nodiscard]] bool conclude(Handshake& handshake, Handshake::Outcome outcome);
  void conclude_joined(Handshake& handshake);
  void conclude_refused(const Handshake& handshake);
  void note_problem(const Handshake& handshake, const std::string& text);
  void add_pending(Fd socket, int dialled_pe);
  [[nodiscard]] std::optional<Refusal> judge(const Hello& hello, bool dialled);
  [[nodiscard]] uint64_t issue_ticket(const std::shared_ptr<Process>& process);
  /// Whether it has left without the thread having noticed yet.
  [[nodiscard]] bool has_left(const Member& member) const;
  void depart(const Member& member);
  [[nodiscard]] Status join_result_locked(std::chrono::milliseconds timeout) const;
  void check_joined();
  void finish_join(std::optional<Error> error);

  const WorldConfig world_;
  const Hello self_;
  const std::shared_ptr<const Segment> segment_;
  const std::shared_ptr<const Fd> doorbell_;
  MemberTable& members_;
  WindowTable& windows_;
  const Fd listening_;
  const Fd wake_;
  const SystemClock clock_;
  const HandshakeContext context_;

  // The thread's own.
  std::vector<Joined> joined_;
  std::vector<Pending> pending_;
  std::vector<Watch> watches_;
  uint64_t last_ticket_ = kOwnTicket;
  std::map<int, int> redials_;  ///< PE -> tries left, for connections that were cut
  int64_t next_tick_ns_ = 0;    ///< when to dial again
  int64_t accept_after_ns_ = 0;
  std::vector<pollfd> polled_;  ///< of wait_for_events(), kept for its memory
  bool rang_ = false;
  bool can_accept_ = false;
  bool news_ = false;  ///< something that the listener is called for

  std::mutex join_mutex_;
  std::condition_variable join_changed_;
  bool join_over_ = false;            ///< guarded by join_mutex_
  std::optional<Error> join_error_;   ///< guarded by join_mutex_
  std::string last_problem_;          ///< guarded by join_mutex_: goes into the time-out's message
  std::vector<Hello> came_and_left_;  ///< guarded by join_mutex_: during the join
  /// Guarded by join_mutex_: by dialled PE, who said that a PE of ours or his is taken. May be over
  /// when the one that has it is gone.
  std::map<int, std::string> overlaps_;
  std::atomic<bool> joining_ = true;  ///< wait_joined() has not returned yet

  std::mutex listener_mutex_;  ///< held while the listener is called
  std::function<void()> listener_;

  std::atomic<bool> stop_ = false;
  std::atomic<bool> call_listener_ = false;
  std::thread thread_;
};

}  // namespace baton::shmem
