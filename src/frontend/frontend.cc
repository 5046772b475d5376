#include "frontend/frontend.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "api/json_writer.h"
#include "api/parse.h"
#include "api/responses.h"
#include "base/log.h"
#include "frontend/plan.h"

namespace baton::frontend {
namespace {

using Exchange = std::shared_ptr<net::HttpExchange>;

constexpr const char* kModelPrefix = "/v1/models/";
constexpr size_t kMaxLabelBytes = 128;

void respond_json(const Exchange& exchange, std::string body, int status = 200) {
  exchange->respond({.status = status, .headers = {}, .body = std::move(body)});
}

void respond_error(const Exchange& exchange, const api::ApiError& error,
                   std::map<std::string, std::string> headers = {}) {
  if (error.retry_after_s > 0) headers["Retry-After"] = std::to_string(error.retry_after_s);
  exchange->respond(
      {.status = error.status, .headers = std::move(headers), .body = api::error_body(error)});
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

/// Spreads a counter over 64 bits (splitmix64, Steele, Lea, Flood 2014).
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

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
      {"/v1/chat/completions", "POST", &Frontend::chat, false},
      {"/v1/completions", "POST", &Frontend::completions, false},
      {"/v1/models", "GET", &Frontend::models, false},
      {"/tokenize", "POST", &Frontend::tokenize, false},
      {"/detokenize", "POST", &Frontend::detokenize, false},
      {"/health", "GET", &Frontend::health, true},
      {"/ready", "GET", &Frontend::ready, true},
      {"/metrics", "GET", &Frontend::metrics, true},
      {"/version", "GET", &Frontend::version, false},
  };
  static constexpr Route kModel = {kModelPrefix, "GET", &Frontend::model, false};
  for (const Route& route : kRoutes) {
    if (path == route.path) return &route;
  }
  const bool names_model =
      path.starts_with(kModelPrefix) && path.size() > std::string_view(kModelPrefix).size();
  return names_model ? &kModel : nullptr;
}

void Frontend::handle(Exchange exchange) {
  const net::HttpRequest& request = exchange->request();
  const Route* route = find_route(request.path);
  if (!(route != nullptr && route->open) && !authorized(request)) {
    return respond_error(exchange, api::unauthorized(), {{"WWW-Authenticate", "Bearer"}});
  }
  if (route == nullptr) {
    return respond_error(exchange, api::route_not_found(request.method, request.path));
  }
  if (request.method != route->method) {
    return respond_error(exchange,
                         api::method_not_allowed(request.method, request.path, route->method),
                         {{"Allow", route->method}});
  }
  if (request.method == "POST") {
    const std::string content_type = header(request, "content-type");
    if (media_type(content_type) != "application/json") {
      return respond_error(exchange, api::unsupported_media_type(content_type));
    }
  }
  (this->*route->handler)(exchange);
}

bool Frontend::authorized(const net::HttpRequest& request) const {
  if (options_.api_key.empty()) return true;
  const std::string value = header(request, "authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (lower(value.substr(0, kScheme.size())) != kScheme) return false;
  return equal_in_constant_time(std::string_view(value).substr(kScheme.size()), options_.api_key);
}

void Frontend::completions(const Exchange& exchange) {
  Arrival arrival = arrive(exchange->request(), "cmpl-");
  auto request = api::parse_completion_request(exchange->request().body, limits_);
  if (!request) return respond_error(exchange, request.error(), {{"X-Request-Id", arrival.id}});
  if (auto ok = check_model(request->params.model, options_.card); !ok) {
    return respond_error(exchange, ok.error(), {{"X-Request-Id", arrival.id}});
  }
  auto plan = plan_completion(std::move(*request), *options_.codec, options_.card);
  if (!plan) return respond_error(exchange, plan.error(), {{"X-Request-Id", arrival.id}});
  submit(exchange, std::move(*plan), std::move(arrival));
}

void Frontend::chat(const Exchange& exchange) {
  Arrival arrival = arrive(exchange->request(), "chatcmpl-");
  auto request = api::parse_chat_request(exchange->request().body, limits_);
  if (!request) return respond_error(exchange, request.error(), {{"X-Request-Id", arrival.id}});
  if (auto ok = check_model(request->params.model, options_.card); !ok) {
    return respond_error(exchange, ok.error(), {{"X-Request-Id", arrival.id}});
  }
  auto plan = plan_chat(std::move(*request), *options_.codec, options_.card);
  if (!plan) return respond_error(exchange, plan.error(), {{"X-Request-Id", arrival.id}});
  submit(exchange, std::move(*plan), std::move(arrival));
}

void Frontend::submit(const Exchange& exchange, GenerationPlan plan, Arrival arrival) {
  arrival.first_id = next_request_id_.fetch_add(plan.prompts.size());
  arrival.seed = mix(options_.random_seed ^ mix(arrival.first_id));
  Generation::start(services_, exchange, std::move(plan), std::move(arrival));
}

Arrival Frontend::arrive(const net::HttpRequest& request, const char* prefix) {
  Arrival out;
  out.arrival_ns = clock_.now_ns();
  out.created_s = options_.unix_seconds();
  out.id = next_id(prefix);
  out.label = printable(header(request, "x-request-id"));
  return out;
}

std::string Frontend::next_id(const char* prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, mix(options_.random_seed),
                     n_requests_.fetch_add(1));
}

void Frontend::models(const Exchange& exchange) {
  const ModelCard& card = options_.card;
  std::vector<api::ModelEntry> entries;
  for (const std::string& name : card.names) {
    entries.push_back({.id = name,
                       .created_s = card.created_s,
                       .max_model_len = card.max_model_len,
                       .root = card.names.front()});
  }
  respond_json(exchange, api::model_list_body(entries));
}

void Frontend::model(const Exchange& exchange) {
  const ModelCard& card = options_.card;
  const std::string name = exchange->request().path.substr(std::string_view(kModelPrefix).size());
  if (!card.has_name(name)) {
    return respond_error(exchange, api::model_not_found(name, card.names.front()));
  }
  respond_json(exchange, api::model_body({.id = name,
                                          .created_s = card.created_s,
                                          .max_model_len = card.max_model_len,
                                          .root = card.names.front()}));
}

void Frontend::tokenize(const Exchange& exchange) {
  auto request = api::parse_tokenize_request(exchange->request().body, limits_);
  if (!request) return respond_error(exchange, request.error());
  if (auto ok = check_model(request->model, options_.card); !ok) {
    return respond_error(exchange, ok.error());
  }
  std::string text;
  if (const auto* chat = std::get_if<api::ChatPrompt>(&request->input)) {
    auto rendered = render_chat(*chat, *options_.codec);
    if (!rendered) return respond_error(exchange, rendered.error());
    text = std::move(*rendered);
  } else {
    text = std::move(std::get<std::string>(request->input));
  }
  const auto tokens = options_.codec->encode(text, request->add_special_tokens);
  if (!tokens) return respond_error(exchange, api::from_error(tokens.error()));
  api::TokenizeResult result{
      .max_model_len = options_.card.max_model_len, .tokens = *tokens, .token_strs = std::nullopt};
  if (request->return_token_strs) {
    result.token_strs.emplace();
    for (const TokenId id : *tokens) result.token_strs->push_back(options_.codec->spelling(id));
  }
  respond_json(exchange, api::tokenize_body(result));
}

void Frontend::detokenize(const Exchange& exchange) {
  const auto request = api::parse_detokenize_request(exchange->request().body, limits_);
  if (!request) return respond_error(exchange, request.error());
  if (auto ok = check_model(request->model, options_.card); !ok) {
    return respond_error(exchange, ok.error());
  }
  respond_json(exchange, api::detokenize_body(options_.codec->decode(
                             request->tokens, {.skip_special = false, .at_start = true})));
}

void Frontend::health(const Exchange& exchange) {
  const BackendHealth state = backend_.health();
  if (state.alive) return respond_json(exchange, api::status_body("ok"));
  respond_error(exchange, api::from_error({.code = ErrorCode::kUnavailable,
                                           .message = "not healthy: " + state.reason}));
}

void Frontend::ready(const Exchange& exchange) {
  const BackendHealth state = backend_.health();
  if (state.alive && state.ready) return respond_json(exchange, api::status_body("ready"));
  respond_error(exchange, api::from_error({.code = ErrorCode::kUnavailable,
                                           .message = "not ready: " + state.reason}));
}

void Frontend::metrics(const Exchange& exchange) {
  exchange->respond({.status = 200,
                     .content_type = "text/plain; version=0.0.4; charset=utf-8",
                     .headers = {},
                     .body = registry_.text()});
}

void Frontend::version(const Exchange& exchange) {
  respond_json(exchange, options_.version_json());
}

}  // namespace baton::frontend
