#include "cli/versions.h"

#include <chrono>
#include <future>

#include "net/http_client.h"

namespace baton::cli {
namespace {

constexpr std::chrono::milliseconds kTimeout{5'000};

}  // namespace

std::vector<EngineVersion> ask_versions(const std::vector<router::EngineAddress>& engines,
                                        const std::string& internal_key) {
  std::vector<EngineVersion> out;
  const auto thread = std::make_shared<net::HttpClientThread>();
  for (const router::EngineAddress& engine : engines) {
    net::HttpClientOptions options;
    options.origin = engine.url;
    options.bearer_token = internal_key;
    auto client = net::HttpClient::create(std::move(options), thread);
    if (!client) continue;
    std::promise<Result<net::HttpResponse>> answered;
    (*client)->request(
        {.method = "GET", .path = "/version", .query = {}, .headers = {}, .body = {}}, kTimeout,
        [&](Result<net::HttpResponse> answer) { answered.set_value(std::move(answer)); });
    auto answer = answered.get_future().get();
    if (answer && answer->status == 200) out.push_back({engine.id, std::move(answer->body)});
  }
  return out;
}

}  // namespace baton::cli
