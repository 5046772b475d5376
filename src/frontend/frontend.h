// The OpenAI server over a Backend: every route of docs that concerns one engine (or, for the
// router's backend, all of them together). No sockets: it answers exchanges (src/net).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "api/error.h"
#include "api/request.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "frontend/backend.h"
#include "frontend/generation.h"
#include "frontend/model_card.h"
#include "frontend/request_metrics.h"
#include "frontend/text_codec.h"
#include "net/http.h"

namespace baton::frontend {

struct FrontendOptions {
  ModelCard card;
  std::shared_ptr<const TextCodec> codec;
  std::string api_key;                        ///< empty: no key needed
  std::function<std::string()> version_json;  ///< body of GET /version
  uint64_t random_seed = 0;                   ///< from std::random_device: ids and default seeds
  std::function<int64_t()> unix_seconds;      ///< "created" of responses; empty: the system's clock
};

/// What a frontend uses and does not own; all outlive it.
struct FrontendDeps {
  Backend& backend;
  MetricsRegistry& registry;
  const Clock& clock;
};

/// Thread-safe. Outlives every exchange it was given and every sink the backend holds.
class Frontend {
 public:
  /// kInvalidArgument if the card or the codec is incomplete.
  [[nodiscard]] static Result<std::unique_ptr<Frontend>> create(FrontendOptions options,
                                                                const FrontendDeps& deps);

  /// Answers the exchange, now or through the backend. Call on the exchange's strand.
  void handle(std::shared_ptr<net::HttpExchange> exchange);

 private:
  using Handler = void (Frontend::*)(const std::shared_ptr<net::HttpExchange>&);
  /// A path and what may be done with it.
  struct Route {
    const char* path;
    const char* method;
    Handler handler;
    bool open;  ///< needs no key
  };

  Frontend(FrontendOptions options, const FrontendDeps& deps);
  static const Route* find_route(const std::string& path);
  [[nodiscard]] bool authorized(const net::HttpRequest& request) const;
  void completions(const std::shared_ptr<net::HttpExchange>& exchange);
  void chat(const std::shared_ptr<net::HttpExchange>& exchange);
  void models(const std::shared_ptr<net::HttpExchange>& exchange);
  void model(const std::shared_ptr<net::HttpExchange>& exchange);
  void tokenize(const std::shared_ptr<net::HttpExchange>& exchange);
  void detokenize(const std::shared_ptr<net::HttpExchange>& exchange);
  void health(const std::shared_ptr<net::HttpExchange>& exchange);
  void ready(const std::shared_ptr<net::HttpExchange>& exchange);
  void metrics(const std::shared_ptr<net::HttpExchange>& exchange);
  void version(const std::shared_ptr<net::HttpExchange>& exchange);

  /// Stamps a request; its RequestIds and seed are given by submit().
  [[nodiscard]] Arrival arrive(const net::HttpRequest& request, const char* prefix);
  void submit(const std::shared_ptr<net::HttpExchange>& exchange, GenerationPlan plan,
              Arrival arrival);
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
};

}  // namespace baton::frontend
