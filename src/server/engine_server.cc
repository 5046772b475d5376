#include "server/engine_server.h"

#include <unistd.h>

#include <iterator>
#include <utility>

#include "engine/handoff.h"
#include "net/drain.h"

namespace baton::server {

Result<std::unique_ptr<EngineServer>> EngineServer::create(EngineServerOptions options,
                                                           const Deps& deps) {
  std::unique_ptr<EngineServer> server(new EngineServer());
  auto http = net::HttpServer::create(options.http);
  if (!http) return tl::unexpected(http.error());
  server->http_ = std::move(*http);

  if (Status joined = server->join_world(options, deps); !joined) {
    return tl::unexpected(joined.error());
  }
  engine::EngineDeps engine_deps;
  engine_deps.model = &deps.model;
  engine_deps.clock = &server->clock_;
  engine_deps.metrics = &deps.metrics;
  engine_deps.trace = deps.trace;
  engine_deps.pool = &deps.pool;
  engine_deps.heap = server->heap_.get();
  auto engine = engine::Engine::create(options.engine, engine_deps, options.engine_cpu);
  if (!engine) return tl::unexpected(engine.error());
  server->engine_ = std::move(*engine);
  server->backend_ = std::make_unique<LocalBackend>(*server->engine_);
  server->info_ = server->describe(options);
  server->microserving_ = std::make_unique<Microserving>(
      MicroservingOptions{server->info_, options.heartbeat},
      Microserving::Deps{*server->engine_, server->heap_.get(), server->clock_});
  server->engine_->on_round([m = server->microserving_.get()](bool idle) { m->on_round(idle); });

  auto routes = server->microserving_->routes();
  std::move(routes.begin(), routes.end(), std::back_inserter(options.frontend.extra_routes));
  options.frontend.card.max_model_len = server->engine_->limits().context_tokens;
  auto frontend = frontend::Frontend::create(std::move(options.frontend),
                                             {*server->backend_, deps.metrics, server->clock_});
  if (!frontend) return tl::unexpected(frontend.error());
  server->frontend_ = std::move(*frontend);
  return server;
}

Status EngineServer::join_world(const EngineServerOptions& options, const Deps& deps) {
  if (options.world_json.empty()) return {};
  auto world = shmem::parse_world(options.world_json);
  if (!world) return tl::unexpected(world.error());
  const auto layout = engine::plan_kv(options.engine, deps.model);
  if (!layout) return tl::unexpected(layout.error());
  shmem::ShmHeapOptions heap;
  heap.world = std::move(*world);
  heap.member = engine::kv_member(*layout, options.engine.model_identity, options.name);
  heap.bytes_per_pe = layout->total_bytes();
  heap.join_timeout = options.join_timeout;
  heap.warm = true;
  auto joined = deps.join(std::move(heap));
  if (!joined) return tl::unexpected(joined.error());
  heap_ = std::move(*joined);
  return {};
}

EngineInfo EngineServer::describe(const EngineServerOptions& options) const {
  const engine::EngineLimits& limits = engine_->limits();
  // Outside of a world it only has to differ from that of an earlier process on the same port.
  const auto now =
      std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  return {.role = options.engine.role,
          .incarnation = heap_ ? heap_->incarnation() : static_cast<uint64_t>(now),
          .pid = static_cast<int>(::getpid()),
          .cpus = options.cpus,
          .context_tokens = limits.context_tokens,
          .n_vocab = limits.n_vocab,
          .n_blocks = limits.n_blocks,
          .block_tokens = limits.block_tokens,
          .max_batch = options.engine.max_batch,
          .prefill_min_tokens = options.engine.prefill_min_tokens,
          .layout_hash = limits.layout_hash,
          .in_world = heap_ != nullptr};
}

EngineServer::~EngineServer() {
  // The engine first: no update may reach a frontend that is gone; then the connections.
  if (engine_) engine_->stop();
  if (microserving_) microserving_->stop();
  if (http_) http_->stop();
}

void EngineServer::start() {
  engine_->start();
  http_->start([this](std::shared_ptr<net::HttpExchange> exchange) {
    frontend_->handle(std::move(exchange));
  });
}

bool EngineServer::drain(std::chrono::milliseconds timeout) {
  return net::drain(*http_, timeout, [this](std::chrono::nanoseconds timeout_ns) {
    const bool finished = engine_->drain(timeout_ns.count());
    engine_->stop();
    microserving_->stop();
    return finished;
  });
}

}  // namespace baton::server
