// The Backend of a router: its core and links on a thread of their own, and the thread-safe way to
// them. The thread sleeps while there is nothing to do.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "frontend/backend.h"
#include "router/core.h"

namespace baton::router {

struct EngineAddress {
  std::string id;   ///< as /engines, plans and metrics name it
  std::string url;  ///< "http://127.0.0.1:8001"; empty = not known yet
};

/// What a link is made with; `post` runs a task on the router's thread.
struct LinkSite {
  int engine = 0;
  EngineListener& listener;
  std::function<void(std::function<void()>)> post;
};
using LinkFactory = std::function<std::unique_ptr<EngineLink>(const LinkSite&)>;

struct RouterBackendOptions {
  RouterOptions router;
  std::vector<EngineAddress> engines;
  /// A round of the thread that takes longer means that it is stuck (health()).
  int64_t stuck_after_ns = int64_t{10} * 1'000'000'000;
};

/// Lifecycle: create() → start() → drain() → stop(). Thread-safe, but start() and stop() belong to
/// one owner.
class RouterBackend final : public frontend::Backend {
 public:
  struct Deps {
    const Clock& clock;
    MetricsRegistry& metrics;
    LinkFactory make_link;  ///< called by create()
    Trace* trace = nullptr;
    std::function<void(const HungEngine&)> on_hang{};  ///< called on the router's thread
  };
  /// Errors as RouterCore::create(); kInvalidArgument: two engines of the same id.
  [[nodiscard]] static Result<std::unique_ptr<RouterBackend>> create(RouterBackendOptions options,
                                                                     const Deps& deps);
  /// Stops.
  ~RouterBackend() override;

  /// Connects to the engines and goes on trying.
  void start();
  [[nodiscard]] Status submit(TokenRequest request, UpdateSink sink) override;
  void cancel(RequestId id, std::optional<int> choice) override;
  [[nodiscard]] frontend::BackendHealth health() const override;

  /// The engine is at `url` from now on (empty: nowhere), or has just been started there. False: no
  /// engine has this id.
  bool set_engine(const std::string& id, const std::string& url, SupervisedState state);
  /// Runs `task` on the router's thread, soon. Once it has stopped `task` is dropped.
  void ask(std::function<void(const RouterCore&)> task);

  /// Takes no more requests; waits until all have ended. False if `timeout_ns` passed before.
  bool drain(int64_t timeout_ns);
  /// Ends what is left with an error, joins the thread and closes the links.
  void stop();

 private:
  using Task = std::function<void()>;
  /// What other threads may know of the core, as of the latest round.
  struct Published {
    std::string missing = "no engine is ready";  ///< for a full path; empty = nothing
    int64_t accepts_until_ns = 0;                ///< RouterCore::accepts_until_ns()
    size_t n_queued = 0;
    size_t n_requests = 0;
  };

  RouterBackend(RouterBackendOptions options, const Deps& deps, std::unique_ptr<RouterCore> core);
  void post(Task task);
  void push_locked(Task task);
  static void guarded(const Task& task);
  void loop();
  struct Taken {
    std::vector<Task> tasks;
    bool stop = false;  ///< these are the last
  };
  /// Everything posted; waits for it, or for the next timer.
  [[nodiscard]] Taken take();
  void publish(size_t n_submits);

  const RouterBackendOptions options_;
  const Clock& clock_;
  std::unique_ptr<RouterCore> core_;                ///< the thread's from start() on
  std::vector<std::unique_ptr<EngineLink>> links_;  ///< likewise
  size_t n_submits_taken_ = 0;                      ///< likewise

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable idle_;
  std::vector<Task> tasks_;
  size_t n_submits_ = 0;  ///< accepted, and not part of published_ yet
  std::optional<std::string> closed_;
  bool stop_ = false;
  bool stopped_ = false;  ///< nobody runs tasks any more
  Published published_;
  int64_t busy_since_ns_ = 0;  ///< when the oldest task that is not done was posted; 0 = none
  std::thread thread_;
};

}  // namespace baton::router
