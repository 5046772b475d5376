#include "frontend/frontend.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

#include "api/json_writer.h"
#include "api/parse.h"
#include "api/responses.h"
#include "base/log.h"
#include "frontend/mix.h"
#include "frontend/plan.h"

namespace baton::frontend {
namespace {

using Exchange = std::shared_ptr<net::HttpExchange>;

constexpr const char* kModelPrefix = "/v1/models/";
constexpr size_t kMaxLabelBytes = 128;

net::HttpResponse json_response(std::string body) {
  return {.status = 200, .headers = {}, .body = std::move(body)};
}

net::HttpResponse error_response(const api::ApiError& error,
                                 std::map<std::string, std::string> headers = {}) {
  if (error.retry_after_s > 0) headers["Retry-After"] = std::to_string(error.retry_after_s);
  return {.status = error.status, .headers = std::move(headers), .body = api::error_body(error)};
}

std::string header(const net::HttpRequest& request, const char* name) {
  const auto it = request.headers.find(name);
  return it == request.headers.end() ? std::string() : it->second;
}

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

/// "application/json" of "Application/JSON; charset=utf-8".
std::string media_type(const std::string& content_type) {
  std::string type = lower(content_type.substr(0, content_type.find(';')));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  return type;
}

/// Takes the same time wherever the two differ.
bool equal_in_constant_time(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < key.size(); ++i) {
    const char c = given.empty() ? '\0' : given[i % given.size()];
    difference |= static_cast<unsigned char>(c) ^ static_cast<unsigned char>(key[i]);
  }
  return difference == 0;
}

/// A client's text that is safe in a log line.
std::string printable(std::string text) {
  text.resize(std::min(text.size(), kMaxLabelBytes));
  for (char& c : text) {
    if (c < 0x20 || c > 0x7E) c = '?';
  }
  return text;
}

int64_t system_unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Whether the client of a request that waits for the worker is still there.
struct Client {
  std::mutex mutex;
  bool gone = false;  ///< written on the strand, under the mutex
};

}  // namespace

Result<std::unique_ptr<Frontend>> Frontend::create(FrontendOptions options,
                                                   const FrontendDeps& deps) {
  if (options.card.names.empty() || options.card.max_model_len < 2 || options.card.n_vocab < 1) {
    return fail(
        ErrorCode::kInvalidArgument,
        "frontend: the model needs a name, a context of at least 2 tokens and a vocabulary");
  }
  if (!options.codec) return fail(ErrorCode::kInvalidArgument, "frontend: no tokenizer");
  if (!options.version_json) options.version_json = [] { return std::string("{}"); };
  if (!options.unix_seconds) options.unix_seconds = system_unix_seconds;
  return std::unique_ptr<Frontend>(new Frontend(std::move(options), deps));
}

Frontend::Frontend(FrontendOptions options, const FrontendDeps& deps)
    : options_(std::move(options)),
      backend_(deps.backend),
      registry_(deps.registry),
      clock_(deps.clock),
      metrics_(deps.registry),
      services_{backend_, *options_.codec, options_.card, metrics_, clock_} {
  limits_.n_vocab = options_.card.n_vocab;
  if (options_.card.created_s == 0) options_.card.created_s = options_.unix_seconds();
}

const Frontend::Route* Frontend::find_route(const std::string& path) {
  static constexpr Route kRoutes[] = {
      {"/v1/chat/completions", "POST", &Frontend::chat, "chatcmpl-"},
      {"/v1/completions", "POST", &Frontend::completions, "cmpl-"},
      {"/v1/models", "GET", &Frontend::models},
      {"/tokenize", "POST", &Frontend::tokenize},
      {"/detokenize", "POST", &Frontend::detokenize},
      {.path = "/health", .method = "GET", .handler = &Frontend::health, .open = true},
      {.path = "/ready", .method = "GET", .handler = &Frontend::ready, .open = true},
      {.path = "/metrics", .method = "GET", .handler = &Frontend::metrics, .open = true},
      {"/version", "GET", &Frontend::version},
  };
  static constexpr Route kModel = {kModelPrefix, "GET", &Frontend::model};
  for (const Route& route : kRoutes) {
    if (path == route.path) return &route;
  }
  const bool names_model =
      path.starts_with(kModelPrefix) && path.size() > std::string_view(kModelPrefix).size();
  return names_model ? &kModel : nullptr;
}

const ExtraRoute* Frontend::find_extra_route(std::string_view path) const {
  for (const ExtraRoute& route : options_.extra_routes) {
    const bool below = route.prefix && path.starts_with(route.path) && path != route.path;
    if (below || (!route.prefix && path == route.path)) return &route;
  }
  return nullptr;
}

void Frontend::handle(Exchange exchange) {
  const net::HttpRequest& request = exchange->request();
  const ExtraRoute* extra = find_extra_route(request.path);
  const Route* route = extra == nullptr ? find_route(request.path) : nullptr;
  std::optional<Terms> terms;
  if (extra != nullptr) terms = {extra->method, extra->open};
  if (route != nullptr) terms = {route->method, route->open};
  Arrival arrival = arrive(request, route == nullptr ? Route{}.id_prefix : route->id_prefix);
  if (auto response = refusal(terms, request)) {
    return finish(exchange, std::move(arrival), std::move(*response));
  }
  if (extra != nullptr) return extra->handler(std::move(exchange));
  if (request.method == "POST" && request.body.size() > kLargeBodyBytes) {
    return prepare_later(*route, exchange, std::move(arrival));
  }
  finish(exchange, std::move(arrival), prepare(*route, request));
}

std::optional<net::HttpResponse> Frontend::refusal(const std::optional<Terms>& terms,
                                                   const net::HttpRequest& request) const {
  if (!(terms && terms->open) && !authorized(request)) {
    return error_response(api::unauthorized(), {{"WWW-Authenticate", "Bearer"}});
  }
  if (!terms) return error_response(api::route_not_found(request.method, request.path));
  if (request.method != terms->method) {
    return error_response(api::method_not_allowed(request.method, request.path, terms->method),
                          {{"Allow", std::string(terms->method)}});
  }
  if (request.method == "POST") {
    const std::string content_type = header(request, "content-type");
    if (media_type(content_type) != "application/json") {
      return error_response(api::unsupported_media_type(content_type));
    }
  }
  return std::nullopt;
}

Frontend::Prepared Frontend::prepare(const Route& route, const net::HttpRequest& request) const {
  try {
    return (this->*route.handler)(request);
  } catch (const std::exception& e) {
    spdlog::error("{} {}: {}", route.method, route.path, e.what());
    return error_response(
        api::from_error({.code = ErrorCode::kInternal, .message = "the server failed"}));
  }
}

void Frontend::prepare_later(const Route& route, const Exchange& exchange, Arrival arrival) {
  const auto client = std::make_shared<Client>();
  const uint64_t ticket =
      worker_.add([this, &route, exchange, arrival = std::move(arrival), client]() mutable {
        Prepared prepared = prepare(route, exchange->request());
        // Under the lock, so that a server whose connections have all ended gets no more posts.
        const std::lock_guard lock(client->mutex);
        if (client->gone) return;
        exchange->post([this, exchange, arrival = std::move(arrival), client,
                        prepared = std::move(prepared)]() mutable {
          if (!client->gone) finish(exchange, std::move(arrival), std::move(prepared));
        });
      });
  exchange->on_close([this, client, ticket] {
    {
      const std::lock_guard lock(client->mutex);
      client->gone = true;
    }
    worker_.drop(ticket);
  });
}

void Frontend::finish(const Exchange& exchange, Arrival arrival, Prepared prepared) {
  if (auto* response = std::get_if<net::HttpResponse>(&prepared)) {
    response->headers["X-Request-Id"] = arrival.id;
    return exchange->respond(std::move(*response));
  }
  auto& plan = std::get<GenerationPlan>(prepared);
  arrival.first_id = next_request_id_.fetch_add(plan.prompts.size());
  arrival.seed = mix(options_.random_seed ^ mix(arrival.first_id));
  Generation::start(services_, exchange, std::move(plan), std::move(arrival));
}

bool Frontend::authorized(const net::HttpRequest& request) const {
  if (options_.api_key.empty()) return true;
  const std::string value = header(request, "authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (lower(value.substr(0, kScheme.size())) != kScheme) return false;
  return equal_in_constant_time(std::string_view(value).substr(kScheme.size()), options_.api_key);
}

Frontend::Prepared Frontend::completions(const net::HttpRequest& http) const {
  auto request = api::parse_completion_request(http.body, limits_);
  if (!request) return error_response(request.error());
  if (auto ok = check_model(request->params.model, options_.card); !ok) {
    return error_response(ok.error());
  }
  auto plan = plan_completion(std::move(*request), *options_.codec, options_.card);
  if (!plan) return error_response(plan.error());
  return std::move(*plan);
}

Frontend::Prepared Frontend::chat(const net::HttpRequest& http) const {
  auto request = api::parse_chat_request(http.body, limits_);
  if (!request) return error_response(request.error());
  if (auto ok = check_model(request->params.model, options_.card); !ok) {
    return error_response(ok.error());
  }
  auto plan = plan_chat(std::move(*request), *options_.codec, options_.card);
  if (!plan) return error_response(plan.error());
  return std::move(*plan);
}

Arrival Frontend::arrive(const net::HttpRequest& request, const char* id_prefix) {
  Arrival out;
  out.arrival_ns = clock_.now_ns();
  out.created_s = options_.unix_seconds();
  out.id = next_id(id_prefix);
  out.label = printable(header(request, "x-request-id"));
  return out;
}

std::string Frontend::next_id(const char* prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, mix(options_.random_seed),
                     n_requests_.fetch_add(1));
}

Frontend::Prepared Frontend::models(const net::HttpRequest& /*http*/) const {
  const ModelCard& card = options_.card;
  std::vector<api::ModelEntry> entries;
  for (const std::string& name : card.names) {
    entries.push_back({.id = name,
                       .created_s = card.created_s,
                       .max_model_len = card.max_model_len,
                       .root = card.names.front()});
  }
  return json_response(api::model_list_body(entries));
}

Frontend::Prepared Frontend::model(const net::HttpRequest& http) const {
  const ModelCard& card = options_.card;
  const std::string name = http.path.substr(std::string_view(kModelPrefix).size());
  if (!card.has_name(name)) {
    return error_response(api::model_not_found(name, card.names.front()));
  }
  return json_response(api::model_body({.id = name,
                                        .created_s = card.created_s,
                                        .max_model_len = card.max_model_len,
                                        .root = card.names.front()}));
}

Frontend::Prepared Frontend::tokenize(const net::HttpRequest& http) const {
  auto request = api::parse_tokenize_request(http.body, limits_);
  if (!request) return error_response(request.error());
  if (auto ok = check_model(request->model, options_.card); !ok) {
    return error_response(ok.error());
  }
  std::string text;
  if (const auto* chat = std::get_if<api::ChatPrompt>(&request->input)) {
    auto rendered = render_chat(*chat, *options_.codec);
    if (!rendered) return error_response(rendered.error());
    text = std::move(*rendered);
  } else {
    text = std::move(std::get<std::string>(request->input));
  }
  const auto tokens = options_.codec->encode(text, request->add_special_tokens);
  if (!tokens) return error_response(api::from_error(tokens.error()));
  api::TokenizeResult result{
      .max_model_len = options_.card.max_model_len, .tokens = *tokens, .token_strs = std::nullopt};
  if (request->return_token_strs) {
    result.token_strs.emplace();
    for (const TokenId id : *tokens) result.token_strs->push_back(options_.codec->spelling(id));
  }
  return json_response(api::tokenize_body(result));
}

Frontend::Prepared Frontend::detokenize(const net::HttpRequest& http) const {
  const auto request = api::parse_detokenize_request(http.body, limits_);
  if (!request) return error_response(request.error());
  if (auto ok = check_model(request->model, options_.card); !ok) {
    return error_response(ok.error());
  }
  return json_response(api::detokenize_body(
      options_.codec->decode(request->tokens, {.skip_special = false, .at_start = true})));
}

Frontend::Prepared Frontend::health(const net::HttpRequest& /*http*/) const {
  const BackendHealth state = backend_.health();
  if (state.alive) return json_response(api::status_body("ok"));
  return error_response(api::from_error(
      {.code = ErrorCode::kUnavailable, .message = "not healthy: " + state.reason}));
}

Frontend::Prepared Frontend::ready(const net::HttpRequest& /*http*/) const {
  const BackendHealth state = backend_.health();
  if (state.alive && state.ready) return json_response(api::status_body("ready"));
  return error_response(
      api::from_error({.code = ErrorCode::kUnavailable, .message = "not ready: " + state.reason}));
}

Frontend::Prepared Frontend::metrics(const net::HttpRequest& /*http*/) const {
  return net::HttpResponse{.status = 200,
                           .content_type = "text/plain; version=0.0.4; charset=utf-8",
                           .headers = {},
                           .body = registry_.text()};
}

Frontend::Prepared Frontend::version(const net::HttpRequest& /*http*/) const {
  return json_response(options_.version_json());
}

}  // namespace baton::frontend
