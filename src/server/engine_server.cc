#include "server/engine_server.h"

#include <utility>

namespace baton::server {

Result<std::unique_ptr<EngineServer>> EngineServer::create(EngineServerOptions options,
                                                           const Deps& deps) {
  std::unique_ptr<EngineServer> server(new EngineServer());
  auto http = net::HttpServer::create(options.http);
  if (!http) return tl::unexpected(http.error());
  server->http_ = std::move(*http);

  engine::EngineDeps engine_deps;
  engine_deps.model = &deps.model;
  engine_deps.clock = &server->clock_;
  engine_deps.metrics = &deps.metrics;
  engine_deps.trace = deps.trace;
  engine_deps.pool = &deps.pool;
  auto engine = engine::Engine::create(options.engine, engine_deps, options.engine_cpu);
  if (!engine) return tl::unexpected(engine.error());
  server->engine_ = std::move(*engine);
  server->backend_ = std::make_unique<LocalBackend>(*server->engine_);

  options.frontend.card.max_model_len = server->engine_->limits().context_tokens;
  auto frontend = frontend::Frontend::create(std::move(options.frontend),
                                             {*server->backend_, deps.metrics, server->clock_});
  if (!frontend) return tl::unexpected(frontend.error());
  server->frontend_ = std::move(*frontend);
  return server;
}

EngineServer::~EngineServer() {
  // The engine first: no update may reach a frontend that is gone; then the connections.
  if (engine_) engine_->stop();
  if (http_) http_->stop();
}

void EngineServer::start() {
  engine_->start();
  http_->start([this](std::shared_ptr<net::HttpExchange> exchange) {
    frontend_->handle(std::move(exchange));
  });
}

bool EngineServer::drain(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  http_->stop_accepting();
  const bool finished =
      engine_->drain(std::chrono::duration_cast<std::chrono::nanoseconds>(timeout).count());
  engine_->stop();
  // What the engine ended has still to be written; a client that doesn't read can't hold us up.
  const auto left = deadline - std::chrono::steady_clock::now();
  const auto grace = std::max(std::chrono::duration_cast<std::chrono::milliseconds>(left),
                              std::chrono::milliseconds(1000));
  const bool written = http_->wait_idle(grace);
  http_->stop();
  return finished && written;
}

}  // namespace baton::server
