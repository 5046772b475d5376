// Starts the engine processes of one host as a group, watches them, starts the dead again, stops
// them; leaves nothing behind, whoever is killed.
//
// An engine says on its ready pipe that it serves, or why it can't (ready_line.h). It finds its
// place in the symmetric world in BATON_SHMEM_INIT_CONFIG_JSON_STR, and the key that it is to ask
// its callers for in BATON_INTERNAL_KEY. Any program that does so can be an engine.
//
// A first start that fails is the end of all; an engine that dies later comes back, as often as it
// takes, with a back-off.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "supervisor/engine_process.h"

namespace baton::supervisor {

/// One engine to run.
struct EngineSpec {
  std::string name;  ///< "engine 1 (decode)": how messages call it
  Role role = Role::kBoth;
  std::vector<int> cpus;               ///< to be shown; `arguments` hand them over
  int pe_start = 0;                    ///< its place in the world
  std::vector<std::string> arguments;  ///< after argv[0]
};

struct SupervisorOptions {
  std::string program = "/proc/self/exe";
  std::string program_name = "baton";  ///< argv[0]
  std::vector<EngineSpec> engines;
  int npes = 0;  ///< of the world; 0 = none: the engines serve alone
  EngineProcess::Options process;
};

/// Lifecycle: create() → start() → stop() → gone. Thread-safe. A thread of its own forks, waits and
/// times; it sleeps while nothing happens.
class Supervisor {
 public:
  /// Called on the supervisor's thread after every change; must not call stop().
  using Listener = std::function<void(const EngineStatus&)>;

  /// Errors: the system has no randomness or no descriptors for us.
  [[nodiscard]] static Result<std::unique_ptr<Supervisor>> create(SupervisorOptions options,
                                                                  Listener listener);
  /// Kills what still runs.
  ~Supervisor();

  /// Starts all engines at once and waits until every one is ready. On failure none is left, and
  /// the error names the engine and the reason: what it said, how it ended, or that its time is
  /// up. kCancelled after interrupt(). Called once.
  [[nodiscard]] Status start();
  /// Makes start() give up, now or when it is called.
  void interrupt();
  /// Kills an engine that hangs, as seen by whoever uses it; it comes back like any that dies.
  /// Nothing happens unless it is ready and in the life in which it has been restarted
  /// `n_restarts` times. Returns at once.
  void kill_hung(int engine, int n_restarts, std::string reason);
  /// SIGTERM to all, SIGKILL to those that still run after `timeout`; returns when all are reaped.
  /// True if none had to be killed.
  bool stop(std::chrono::milliseconds timeout);

  [[nodiscard]] std::vector<EngineStatus> engines() const;
  /// The key that the engines ask for.
  [[nodiscard]] const std::string& internal_key() const { return internal_key_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase {
    kCreated,
    kStarting,
    kRunning,
    kStopping,  ///< SIGTERM was sent
    kKilling,   ///< SIGKILL was sent
    kGone,      ///< no process is left, none will be made
  };

  struct Hung {
    int engine = 0;
    int n_restarts = 0;
    std::string reason;
  };

  Supervisor(SupervisorOptions options, Listener listener);
  // On the thread.
  void loop();
  void wait_for_something();
  void look_after(EngineProcess& engine);
  void spawn(EngineProcess& engine);
  void publish(const EngineProcess& engine);
  /// What follows from what the engines do, and from what others asked for.
  void next_phase();
  void begin();
  void check_start();
  void restart_the_dead();
  void kill_the_hung();
  void terminate_all(std::chrono::milliseconds timeout);
  void kill_all();
  [[nodiscard]] std::vector<std::string> environment(const EngineStatus& engine) const;
  [[nodiscard]] std::optional<Error> start_failure() const;
  // On any.
  void wake() const;
  void set_phase(Phase phase);

  const SupervisorOptions options_;
  const Listener listener_;
  std::string uid_;
  std::string internal_key_;
  Pipe lifeline_;
  Fd wake_fd_;                            ///< eventfd
  std::vector<EngineProcess> processes_;  ///< of the thread
  Clock::time_point kill_at_;             ///< of the thread

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::kCreated;  ///< written by the thread alone
  std::vector<EngineStatus> statuses_;
  std::optional<Error> start_error_;
  bool start_wanted_ = false;
  bool interrupted_ = false;
  std::vector<Hung> hung_;                                 ///< to be killed
  std::optional<std::chrono::milliseconds> stop_timeout_;  ///< set: stop() was called
  bool killed_ = false;                                    ///< stop() had to
  bool quit_ = false;                                      ///< the thread ends once all are gone

  std::thread thread_;
};

}  // namespace baton::supervisor
