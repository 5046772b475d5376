// An engine process: HTTP server → frontend → backend → engine, with the routes for a router and
// the place in a symmetric world beside them, put together, started and drained.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "engine/engine.h"
#include "frontend/frontend.h"
#include "net/http_server.h"
#include "server/local_backend.h"
#include "server/microserving.h"
#include "shmem/shm_heap.h"

namespace baton::server {

struct EngineServerOptions {
  engine::EngineOptions engine;
  frontend::FrontendOptions frontend;  ///< card.max_model_len is set to what the engine can hold
  net::HttpServerOptions http;
  int engine_cpu = -1;  ///< CPU that the engine thread pins itself to; -1 = none

  std::string name = "engine";  ///< "engine 1 (decode)": what other members call it
  std::vector<int> cpus;        ///< for the router to show
  /// The value of shmem::kWorldVariable; empty = it serves alone.
  std::string world_json;
  std::chrono::milliseconds join_timeout{60'000};
  std::chrono::milliseconds heartbeat{1000};  ///< see MicroservingOptions
};

/// Lifecycle: create() (listens, so that a port in use is known early; joins its world) → start() →
/// drain() → gone.
/// Owned and used by one thread.
class EngineServer {
 public:
  /// The model, the metrics and the trace (may be null) outlive the server.
  struct Deps {
    model::TokenModel& model;
    ThreadPool& pool;  ///< the model's own, to sample on; the engine thread's from start() on
    MetricsRegistry& metrics;
    Trace* trace;
    /// How to join a world; tests have one of their own.
    std::function<Result<std::unique_ptr<shmem::Heap>>(shmem::ShmHeapOptions)> join =
        shmem::ShmHeap::create;
  };
  /// Errors: those of the HTTP server, of the world (a member is missing or doesn't fit) and of the
  /// engine.
  [[nodiscard]] static Result<std::unique_ptr<EngineServer>> create(EngineServerOptions options,
                                                                    const Deps& deps);
  ~EngineServer();

  void start();
  [[nodiscard]] uint16_t port() const { return http_->port(); }
  [[nodiscard]] const engine::Engine& engine() const { return *engine_; }
  /// What a router is told.
  [[nodiscard]] const EngineInfo& info() const { return info_; }
  /// Takes no new work, lets what runs finish for up to `timeout`, ends the rest with an error and
  /// stops. True if everything finished.
  bool drain(std::chrono::milliseconds timeout);

 private:
  EngineServer() = default;
  [[nodiscard]] Status join_world(const EngineServerOptions& options, const Deps& deps);
  [[nodiscard]] EngineInfo describe(const EngineServerOptions& options) const;

  // In the order of need: each uses those above it.
  SystemClock clock_;
  std::unique_ptr<shmem::Heap> heap_;  ///< null outside of a world
  std::unique_ptr<engine::Engine> engine_;
  EngineInfo info_;
  std::unique_ptr<LocalBackend> backend_;
  std::unique_ptr<Microserving> microserving_;
  std::unique_ptr<frontend::Frontend> frontend_;
  std::unique_ptr<net::HttpServer> http_;
};

}  // namespace baton::server
