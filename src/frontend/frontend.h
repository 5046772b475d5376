// The OpenAI server over a Backend: every route of docs that concerns one engine (or, for the
// router's backend, all of them together). No sockets: it answers exchanges (src/net).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/error.h"
#include "api/request.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "frontend/backend.h"
#include "frontend/generation.h"
#include "frontend/model_card.h"
#include "frontend/request_metrics.h"
#include "frontend/text_codec.h"
#include "frontend/worker.h"
#include "net/http.h"

namespace baton::frontend {

/// A route that a process adds to the frontend's own, or puts in the place of one of them (the
/// router's /metrics). Key, method and content type are checked before the handler is called.
struct ExtraRoute {
  std::string method;   ///< "GET" or "POST"
  std::string path;     ///< exactly this
  bool prefix = false;  ///< or: whatever begins with it and is longer
  bool open = false;    ///< needs no key
  /// Owns the exchange, so it may answer at any time. Called on the exchange's strand.
  net::HttpHandler handler;
};

struct FrontendOptions {
  ModelCard card;
  std::shared_ptr<const TextCodec> codec;
  std::string api_key;                        ///< empty: no key needed
  std::function<std::string()> version_json;  ///< body of GET /version
  uint64_t random_seed = 0;                   ///< from std::random_device: ids and default seeds
  std::function<int64_t()> unix_seconds;      ///< "created" of responses; empty: the system's clock
  std::vector<ExtraRoute> extra_routes;       ///< found before the frontend's own
};

/// What a frontend uses and does not own; all outlive it.
struct FrontendDeps {
  Backend& backend;
  MetricsRegistry& registry;
  const Clock& clock;
};

/// Thread-safe. Outlives every exchange it was given and every sink the backend holds. Its
/// destructor waits for the big request being prepared, if there is one.
class Frontend {
 public:
  /// A longer body is parsed, rendered and tokenised on the frontend's own thread, as that would
  /// keep an I/O thread, and with it other connections, waiting for milliseconds to seconds.
  static constexpr size_t kLargeBodyBytes = size_t{64} << 10;

  /// kInvalidArgument if the card or the codec is incomplete.
  [[nodiscard]] static Result<std::unique_ptr<Frontend>> create(FrontendOptions options,
                                                                const FrontendDeps& deps);

  /// Answers the exchange, now or through the backend. Call on the exchange's strand.
  void handle(std::shared_ptr<net::HttpExchange> exchange);

 private:
  /// What a request comes to before any backend hears of it: an answer, or what to generate.
  using Prepared = std::variant<net::HttpResponse, GenerationPlan>;
  /// Pure work, on whatever thread.
  using Handler = Prepared (Frontend::*)(const net::HttpRequest&) const;
  /// A path and what may be done with it.
  struct Route {
    const char* path;
    const char* method;
    Handler handler;
    const char* id_prefix = "req-";
    bool open = false;  ///< needs no key
  };

  /// What is asked of a request before its body is looked at.
  struct Terms {
    std::string_view method;
    bool open = false;
  };

  Frontend(FrontendOptions options, const FrontendDeps& deps);
  static const Route* find_route(const std::string& path);
  [[nodiscard]] const ExtraRoute* find_extra_route(std::string_view path) const;
  [[nodiscard]] bool authorized(const net::HttpRequest& request) const;
  /// What is wrong with the request before its body is looked at; no terms: there is no such route.
  [[nodiscard]] std::optional<net::HttpResponse> refusal(const std::optional<Terms>& terms,
                                                         const net::HttpRequest& request) const;
  Prepared completions(const net::HttpRequest& request) const;
  Prepared chat(const net::HttpRequest& request) const;
  Prepared models(const net::HttpRequest& request) const;
  Prepared model(const net::HttpRequest& request) const;
  Prepared tokenize(const net::HttpRequest& request) const;
  Prepared detokenize(const net::HttpRequest& request) const;
  Prepared health(const net::HttpRequest& request) const;
  Prepared ready(const net::HttpRequest& request) const;
  Prepared metrics(const net::HttpRequest& request) const;
  Prepared version(const net::HttpRequest& request) const;

  /// Stamps a request; its RequestIds and seed are given by finish().
  [[nodiscard]] Arrival arrive(const net::HttpRequest& request, const char* id_prefix);
  /// Runs the route's handler; an exception (out of memory, say) becomes a 500.
  [[nodiscard]] Prepared prepare(const Route& route, const net::HttpRequest& request) const;
  /// The same on the worker, then finish() on the exchange's strand.
  void prepare_later(const Route& route, const std::shared_ptr<net::HttpExchange>& exchange,
                     Arrival arrival);
  /// Answers, or starts the generation. On the exchange's strand.
  void finish(const std::shared_ptr<net::HttpExchange>& exchange, Arrival arrival,
              Prepared prepared);
  [[nodiscard]] std::string next_id(const char* prefix);

  FrontendOptions options_;
  Backend& backend_;
  MetricsRegistry& registry_;
  const Clock& clock_;
  api::RequestLimits limits_;
  RequestMetrics metrics_;
  Services services_;
  std::atomic<uint64_t> n_requests_{0};       ///< for the ids clients see
  std::atomic<uint64_t> next_request_id_{1};  ///< for RequestId
  Worker worker_;                             ///< last: its tasks use all the others
};

}  // namespace baton::frontend
