#include "router/metrics_gatherer.h"

#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "router/metrics_merge.h"

namespace baton::router {
namespace {

/// What has come so far for one exchange. Held by the requests under way: when the last of them is
/// done or forgotten, it answers.
class Gathering {
 public:
  Gathering(std::string own, std::shared_ptr<net::HttpExchange> exchange, size_t n_engines)
      : own_(std::move(own)), exchange_(std::move(exchange)), engines_(n_engines) {}
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  ~Gathering() {
    exchange_->respond({.status = 200,
                        .content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .headers = {},
                        .body = merge_metrics(own_, engines_)});
  }

  /// Before any request is under way.
  EngineMetrics& engine(size_t i) { return engines_[i]; }

  void answered(size_t i, Result<net::HttpResponse> response) {
    const std::lock_guard lock(mutex_);
    if (!response) {
      engines_[i].error = response.error().message;
    } else if (response->status != 200) {
      engines_[i].error = fmt::format("HTTP {}", response->status);
    } else {
      engines_[i].text = std::move(response->body);
    }
  }

 private:
  std::string own_;
  std::shared_ptr<net::HttpExchange> exchange_;
  std::mutex mutex_;
  std::vector<EngineMetrics> engines_;
};

}  // namespace

void MetricsGatherer::answer(const EngineTable& engines,
                             std::shared_ptr<net::HttpExchange> exchange) {
  const auto gathering = std::make_shared<Gathering>(registry_.text(), std::move(exchange),
                                                     static_cast<size_t>(engines.size()));
  std::set<std::string> urls;
  for (int i = 0; i < engines.size(); ++i) {
    EngineMetrics& out = gathering->engine(static_cast<size_t>(i));
    out.id = engines[i].id;
    out.role = engines[i].info.incarnation == 0 ? "" : name(engines[i].info.role);
    out.error = engines[i].last_error.empty() ? "it is not attached" : engines[i].last_error;
    urls.insert(engines[i].url);
  }
  // The addresses of engines that were started anew elsewhere.
  std::erase_if(clients_, [&](const auto& entry) { return !urls.contains(entry.first); });
  for (int i = 0; i < engines.size(); ++i) {
    net::HttpClient* const asked = engines[i].up ? client(engines[i].url) : nullptr;
    if (asked == nullptr) continue;
    asked->request({.method = "GET", .path = "/metrics", .query = {}, .headers = {}, .body = {}},
                   kTimeout,
                   [gathering, i = static_cast<size_t>(i)](Result<net::HttpResponse> response) {
                     gathering->answered(i, std::move(response));
                   });
  }
}

net::HttpClient* MetricsGatherer::client(const std::string& url) {
  std::unique_ptr<net::HttpClient>& client = clients_[url];
  if (!client) {
    net::HttpClientOptions options;
    options.origin = url;
    auto made = net::HttpClient::create(std::move(options), io_);
    if (!made) return nullptr;
    client = std::move(*made);
  }
  return client.get();
}

}  // namespace baton::router
