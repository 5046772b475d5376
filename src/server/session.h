// What a router has under way on this engine, and the stream that its news go out on.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/engine_info.h"
#include "base/token_request.h"
#include "engine/engine.h"
#include "net/http.h"

namespace baton::server {

/// The stream of one attach, or of one start_generate without a session. Its requests have ids of
/// the router's ("theirs") and, as several routers may use the same, of the engine's ("ours").
///
/// Lifecycle: begins with the stream, ends with its connection or end(); then everything that was
/// started under it is cancelled, and its leases released. Thread-safe.
class Session : public std::enable_shared_from_this<Session> {
 public:
  struct Options {
    std::string id;
    std::string router;  ///< for the log
    /// Ends by itself when its last request has.
    bool one_request = false;
    /// For each frame; thread-safe.
    std::function<EngineState()> state{};
  };
  /// `engine` outlives every session.
  Session(Options options, std::shared_ptr<net::HttpExchange> exchange, engine::Engine& engine);

  /// A request begins (with no choices: a send). kNotFound: the session has ended;
  /// kInvalidArgument: the id is in use.
  [[nodiscard]] Status begin(RequestId theirs, RequestId ours, std::vector<int> choices = {});
  /// Forgets a request that came to nothing, or a send that has ended.
  void forget(RequestId theirs);
  /// Ends a request or a choice of it; unknown ones are ignored.
  void cancel(RequestId theirs, std::optional<int> choice);
  /// Leases that are released if the session ends before somebody took them over. False: it has.
  [[nodiscard]] bool add_lease(LeaseId lease);
  void drop_lease(LeaseId lease);

  /// What the engine reports of a request of this session, from the engine's thread. It waits for
  /// flush(). True if it is the first to wait.
  bool add(RequestId theirs, RequestUpdate update);
  /// Writes what waits, as one frame.
  void flush();
  /// Writes a frame if none was written since the last call.
  void beat();
  /// Writes a frame.
  void tell_state();
  /// Writes what waits and ends the stream: the engine goes.
  void end();
  /// Cancels everything; nothing is written any more.
  void close();

  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] bool closed() const;

 private:
  struct Running {
    RequestId ours;
    std::set<int> choices;  ///< that have not ended; none for a send
  };
  void post_drain();
  void drain();

  const Options options_;
  const std::shared_ptr<net::HttpExchange> exchange_;
  engine::Engine& engine_;

  mutable std::mutex mutex_;              ///< guards what follows
  std::map<RequestId, Running> running_;  ///< by their ids
  std::deque<LeaseId> leases_;            ///< the latest ones
  std::vector<RequestUpdate> outbox_;
  bool drain_posted_ = false;
  bool quiet_ = false;   ///< no frame since the last beat
  bool ending_ = false;  ///< the next frame is the last
  bool closed_ = false;
};

}  // namespace baton::server
