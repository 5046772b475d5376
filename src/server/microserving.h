// The routes that a router speaks to this engine by (docs/protocol.md): attach, prep_recv,
// remote_send, start_generate, release.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/error.h"
#include "api/microserving.h"
#include "base/clock.h"
#include "base/engine_info.h"
#include "engine/engine.h"
#include "frontend/frontend.h"
#include "server/session.h"
#include "shmem/heap.h"

namespace baton::server {

struct MicroservingOptions {
  EngineInfo info;
  /// A session's stream is never silent for longer.
  std::chrono::milliseconds heartbeat{1000};
};

/// Handlers run on the connections' strands, reports of the engine on its thread; that one only
/// queues. Lifecycle: create, routes() to the frontend, on_round() to the engine, start; stop()
/// when the engine has stopped and before the HTTP server does. Thread-safe.
class Microserving {
 public:
  /// All outlive it.
  struct Deps {
    engine::Engine& engine;
    const shmem::Heap* heap;  ///< null: this engine has no place in a world
    const Clock& clock;
  };
  Microserving(MicroservingOptions options, const Deps& deps);
  /// Stops.
  ~Microserving();

  [[nodiscard]] std::vector<frontend::ExtraRoute> routes();
  /// The engine has sent all updates of a round; on the engine's thread.
  void on_round(bool idle);
  /// Sends what is left and ends all sessions.
  void stop();

 private:
  using Exchange = std::shared_ptr<net::HttpExchange>;
  using SessionPtr = std::shared_ptr<Session>;

  void attach(const Exchange& exchange);
  void prep_recv(const Exchange& exchange);
  void remote_send(const Exchange& exchange);
  void start_generate(const Exchange& exchange);
  void start_streaming(const Exchange& exchange, TokenRequest request);
  void release(const Exchange& exchange);

  /// 409 when the address was made for another layout, or by an engine that is gone.
  [[nodiscard]] std::optional<api::ApiError> check_address(const KvAddress& address) const;
  /// Queues the request; its updates go to the session under `theirs`.
  [[nodiscard]] Status submit(const SessionPtr& session, TokenRequest request);
  /// The session of that id; an empty id is none (null), an unknown one an error.
  [[nodiscard]] api::ApiResult<SessionPtr> find_session(const std::string& id);
  [[nodiscard]] SessionPtr open_session(Session::Options options, const Exchange& exchange);
  void close_session(const SessionPtr& session);
  [[nodiscard]] std::vector<SessionPtr> all_sessions();

  [[nodiscard]] EngineState state() const;
  [[nodiscard]] RequestId next_id() { return RequestId{next_id_.fetch_add(1)}; }
  /// When the request arrived, if it says so and that can be.
  [[nodiscard]] int64_t arrival(int64_t arrival_ns) const;
  void beat();

  const MicroservingOptions options_;
  engine::Engine& engine_;
  const shmem::Heap* const heap_;
  const Clock& clock_;
  const api::WireLimits limits_;
  std::atomic<uint64_t> next_id_;
  /// Sessions with updates that wait for the end of the round; the engine thread's.
  std::vector<SessionPtr> with_news_;

  std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  std::map<std::string, SessionPtr> sessions_;
  bool stopped_ = false;
  std::thread heart_;  ///< last: it uses the others
};

}  // namespace baton::server
