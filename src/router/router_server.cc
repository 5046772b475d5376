#include "router/router_server.h"

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

#include "api/error.h"
#include "base/log.h"
#include "net/drain.h"
#include "router/http_link.h"

namespace baton::router {
namespace {

using Exchange = std::shared_ptr<net::HttpExchange>;

constexpr std::string_view kRequestsPrefix = "/requests/";
constexpr std::string_view kPlanSuffix = "/plan";

void respond_json(net::HttpExchange& exchange, std::string body) {
  exchange.respond({.status = 200, .headers = {}, .body = std::move(body)});
}

void respond_error(net::HttpExchange& exchange, const api::ApiError& error) {
  exchange.respond({.status = error.status, .headers = {}, .body = api::error_body(error)});
}

void answer_plan(const RouterCore& core, net::HttpExchange& exchange, const std::string& label) {
  if (auto plan = core.plan_json(label)) return respond_json(exchange, std::move(*plan));
  respond_error(exchange,
                api::from_error({.code = ErrorCode::kNotFound,
                                 .message = fmt::format(
                                     "request '{}' is not known; the plans of the latest requests "
                                     "are kept, under the id in the response",
                                     label)}));
}

/// What one engine is like for those who wait for it.
struct Seen {
  std::string title;
  EngineInfo info;
  std::string last_error;
};

/// Asks the router's thread.
std::vector<Seen> look(RouterBackend& backend) {
  auto answer = std::make_shared<std::promise<std::vector<Seen>>>();
  auto seen = answer->get_future();
  backend.ask([answer](const RouterCore& core) {
    std::vector<Seen> out;
    for (int i = 0; i < core.engines().size(); ++i) {
      const Engine& one = core.engines()[i];
      out.push_back({fmt::format("engine {} at {}", one.id, one.url), one.info, one.last_error});
    }
    answer->set_value(std::move(out));
  });
  return seen.get();
}

}  // namespace

Result<std::unique_ptr<RouterServer>> RouterServer::create(RouterServerOptions options,
                                                           MetricsRegistry& metrics, Trace* trace) {
  std::unique_ptr<RouterServer> server(new RouterServer());
  auto http = net::HttpServer::create(options.http);
  if (!http) return tl::unexpected(http.error());
  server->http_ = std::move(*http);

  server->io_ = std::make_shared<net::HttpClientThread>();
  for (const EngineAddress& engine : options.engines) {
    if (engine.url.empty()) continue;
    net::HttpClientOptions origin;
    origin.origin = engine.url;
    const auto client = net::HttpClient::create(std::move(origin), server->io_);
    if (!client) return tl::unexpected(client.error());
  }
  server->gatherer_ = std::make_unique<MetricsGatherer>(metrics, server->io_);
  auto backend =
      RouterBackend::create({.router = options.router, .engines = options.engines},
                            {server->clock_, metrics, server->link_factory(options.internal_key),
                             trace, options.on_hang});
  if (!backend) return tl::unexpected(backend.error());
  server->backend_ = std::move(*backend);
  server->backend_->start();
  if (Status ok = server->complete(options.frontend.card, options.attach_timeout); !ok) {
    return tl::unexpected(ok.error());
  }
  for (frontend::ExtraRoute& route : server->routes()) {
    options.frontend.extra_routes.push_back(std::move(route));
  }
  auto frontend = frontend::Frontend::create(std::move(options.frontend),
                                             {*server->backend_, metrics, server->clock_});
  if (!frontend) return tl::unexpected(frontend.error());
  server->frontend_ = std::move(*frontend);
  return server;
}

RouterServer::~RouterServer() {
  // The backend first: no update may reach a frontend that is gone; then what waits for engines'
  // metrics, then the connections.
  if (backend_) backend_->stop();
  gatherer_.reset();
  if (http_) http_->stop();
}

void RouterServer::start() {
  http_->start([this](Exchange exchange) { frontend_->handle(std::move(exchange)); });
}

LinkFactory RouterServer::link_factory(const std::string& internal_key) {
  return [this, internal_key](const LinkSite& site) -> std::unique_ptr<EngineLink> {
    HttpLinkOptions options;
    options.engine = site.engine;
    options.internal_key = internal_key;
    return std::make_unique<HttpLink>(std::move(options),
                                      HttpLinkDeps{site.listener, site.post, clock_, io_});
  };
}

std::vector<frontend::ExtraRoute> RouterServer::routes() {
  std::vector<frontend::ExtraRoute> out;
  out.push_back({.method = "GET", .path = "/engines", .handler = [this](const Exchange& exchange) {
                   backend_->ask([exchange](const RouterCore& core) {
                     respond_json(*exchange, core.engines().json());
                   });
                 }});
  out.push_back({.method = "GET",
                 .path = "/metrics",
                 .open = true,
                 .handler = [this](const Exchange& exchange) {
                   backend_->ask([this, exchange](const RouterCore& core) {
                     gatherer_->answer(core.engines(), exchange);
                   });
                 }});
  out.push_back({.method = "GET",
                 .path = std::string(kRequestsPrefix),
                 .prefix = true,
                 .handler = [this](const Exchange& exchange) {
                   const net::HttpRequest& request = exchange->request();
                   std::string_view label = request.path;
                   label.remove_prefix(kRequestsPrefix.size());
                   if (!label.ends_with(kPlanSuffix)) {
                     return respond_error(*exchange,
                                          api::route_not_found(request.method, request.path));
                   }
                   label.remove_suffix(kPlanSuffix.size());
                   backend_->ask([exchange, label = std::string(label)](const RouterCore& core) {
                     answer_plan(core, *exchange, label);
                   });
                 }});
  return out;
}

Status RouterServer::complete(frontend::ModelCard& card, std::chrono::milliseconds timeout) {
  if (card.max_model_len != 0 && card.n_vocab != 0) return {};
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto attached = [](const Seen& one) { return one.info.incarnation != 0; };
  std::vector<Seen> engines = look(*backend_);
  while (!std::all_of(engines.begin(), engines.end(), attached) &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    engines = look(*backend_);
  }
  int context = 0;
  int n_vocab = 0;
  std::string missing;
  for (const Seen& one : engines) {
    if (!attached(one)) {
      missing += fmt::format("{}{}: {}", missing.empty() ? "" : "; ", one.title,
                             one.last_error.empty() ? "no answer yet" : one.last_error);
      continue;
    }
    context = context == 0 ? one.info.context_tokens : std::min(context, one.info.context_tokens);
    n_vocab = n_vocab == 0 ? one.info.n_vocab : std::min(n_vocab, one.info.n_vocab);
  }
  if (context == 0) {
    return fail(ErrorCode::kUnavailable, "no engine could be attached: {}",
                missing.empty() ? "there is none" : missing);
  }
  if (!missing.empty()) spdlog::warn("serving without {}", missing);
  if (card.max_model_len == 0) card.max_model_len = context;
  if (card.n_vocab == 0) card.n_vocab = n_vocab;
  return {};
}

bool RouterServer::drain(std::chrono::milliseconds timeout) {
  return net::drain(*http_, timeout, [this](std::chrono::nanoseconds timeout_ns) {
    const bool finished = backend_->drain(timeout_ns.count());
    backend_->stop();
    gatherer_.reset();
    return finished;
  });
}

}  // namespace baton::router
