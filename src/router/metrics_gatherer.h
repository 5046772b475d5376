// GET /metrics of a router: asks every engine, then answers with all of it.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/metrics.h"
#include "net/http.h"
#include "net/http_client.h"
#include "router/engine_table.h"

namespace baton::router {

/// Owned and used by the router's thread. Exchanges that wait for engines when it goes are answered
/// without them.
class MetricsGatherer {
 public:
  static constexpr std::chrono::milliseconds kTimeout{1'000};  ///< for an engine's answer

  MetricsGatherer(MetricsRegistry& registry, std::shared_ptr<net::HttpClientThread> io)
      : registry_(registry), io_(std::move(io)) {}

  /// Answers, when the last engine has, or at the time-out.
  void answer(const EngineTable& engines, std::shared_ptr<net::HttpExchange> exchange);

 private:
  [[nodiscard]] net::HttpClient* client(const std::string& url);

  MetricsRegistry& registry_;
  std::shared_ptr<net::HttpClientThread> io_;
  std::map<std::string, std::unique_ptr<net::HttpClient>> clients_;  ///< by URL
};

}  // namespace baton::router
