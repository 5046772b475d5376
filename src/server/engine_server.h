// An engine process: HTTP server → frontend → backend → engine, put together, started and drained.
#pragma once

#include <chrono>
#include <memory>

#include "base/clock.h"
#include "base/metrics.h"
#include "engine/engine.h"
#include "frontend/frontend.h"
#include "net/http_server.h"
#include "server/local_backend.h"

namespace baton::server {

struct EngineServerOptions {
  engine::EngineOptions engine;
  frontend::FrontendOptions frontend;  ///< card.max_model_len is set to what the engine can hold
  net::HttpServerOptions http;
  int engine_cpu = -1;  ///< CPU that the engine thread pins itself to; -1 = none
};

/// Lifecycle: create() (listens, so that a port in use is known early) → start() → drain() → gone.
/// Owned and used by one thread.
class EngineServer {
 public:
  /// The model, the metrics and the trace (may be null) outlive the server.
  struct Deps {
    model::TokenModel& model;
    ThreadPool& pool;  ///< the model's own, to sample on; the engine thread's from start() on
    MetricsRegistry& metrics;
    Trace* trace;
  };
  [[nodiscard]] static Result<std::unique_ptr<EngineServer>> create(EngineServerOptions options,
                                                                    const Deps& deps);
  ~EngineServer();

  void start();
  [[nodiscard]] uint16_t port() const { return http_->port(); }
  [[nodiscard]] const engine::Engine& engine() const { return *engine_; }
  /// Takes no new work, lets what runs finish for up to `timeout`, ends the rest with an error and
  /// stops. True if everything finished.
  bool drain(std::chrono::milliseconds timeout);

 private:
  EngineServer() = default;

  // In the order of need: each uses those above it.
  SystemClock clock_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<LocalBackend> backend_;
  std::unique_ptr<frontend::Frontend> frontend_;
  std::unique_ptr<net::HttpServer> http_;
};

}  // namespace baton::server
