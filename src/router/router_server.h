// The router as a server: HTTP server → frontend → backend → links to engines, put together,
// started and drained. Like server/engine_server.h, without a model.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "frontend/frontend.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "router/backend.h"
#include "router/metrics_gatherer.h"

namespace baton::router {

struct RouterServerOptions {
  /// card.max_model_len 0, card.n_vocab 0: create() waits until the engines are attached and takes
  /// the smallest of theirs.
  frontend::FrontendOptions frontend;
  net::HttpServerOptions http;
  RouterOptions router;
  std::vector<EngineAddress> engines;
  std::string internal_key;                          ///< that the engines want; empty = none
  std::chrono::milliseconds attach_timeout{30'000};  ///< for that waiting
  /// See RouterOptions::hang_timeout_ns; called on the router's thread, must not block.
  std::function<void(const HungEngine&)> on_hang;
};

/// Lifecycle: create() (listens, and begins to attach to the engines) → start() → drain() → gone.
/// Owned and used by one thread, but for set_engine().
class RouterServer {
 public:
  /// The metrics and the trace (may be null) outlive the server. Errors: port in use, a URL that is
  /// none, an unknown policy; or no engine attached in time, with what keeps each from it.
  [[nodiscard]] static Result<std::unique_ptr<RouterServer>> create(RouterServerOptions options,
                                                                    MetricsRegistry& metrics,
                                                                    Trace* trace = nullptr);
  ~RouterServer();

  void start();
  [[nodiscard]] uint16_t port() const { return http_->port(); }
  /// What GET /health and GET /ready say.
  [[nodiscard]] frontend::BackendHealth health() const { return backend_->health(); }
  /// A (re)started engine is at `url` (empty: it is dead). Thread-safe. False: no such engine.
  bool set_engine(const std::string& id, const std::string& url, SupervisedState state) {
    return backend_->set_engine(id, url, std::move(state));
  }
  /// Takes no new work, lets what runs finish for up to `timeout`, ends the rest with an error and
  /// stops. True if everything finished.
  bool drain(std::chrono::milliseconds timeout);

 private:
  RouterServer() = default;
  [[nodiscard]] LinkFactory link_factory(const std::string& internal_key);
  [[nodiscard]] std::vector<frontend::ExtraRoute> routes();
  /// Fills in what only the engines know.
  [[nodiscard]] Status complete(frontend::ModelCard& card, std::chrono::milliseconds timeout);

  // In the order of need: each uses those above it.
  SystemClock clock_;
  std::shared_ptr<net::HttpClientThread> io_;
  std::unique_ptr<MetricsGatherer> gatherer_;
  std::unique_ptr<RouterBackend> backend_;
  std::unique_ptr<frontend::Frontend> frontend_;
  std::unique_ptr<net::HttpServer> http_;
};

}  // namespace baton::router
