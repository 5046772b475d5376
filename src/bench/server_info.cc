#include "bench/server_info.h"

#include <future>
#include <nlohmann/json.hpp>

namespace baton::bench {

ServerInfo read_models(const std::string& body) {
  const auto answer = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  ServerInfo out;
  if (!answer.is_object() || !answer.contains("data")) return out;
  const auto& data = answer["data"];
  if (!data.is_array() || data.empty() || !data[0].is_object()) return out;
  const auto& model = data[0];
  if (model.contains("id") && model["id"].is_string()) out.model = model["id"].get<std::string>();
  if (model.contains("max_model_len") && model["max_model_len"].is_number_unsigned()) {
    const auto length = model["max_model_len"].get<uint64_t>();
    if (length < (uint64_t{1} << 31)) out.max_model_len = static_cast<int>(length);
  }
  return out;
}

Result<ServerInfo> ask_server(net::HttpClient& client) {
  std::promise<Result<net::HttpResponse>> answered;
  net::HttpRequest request;
  request.method = "GET";
  request.path = "/v1/models";
  client.request(std::move(request), std::chrono::seconds(10),
                 [&](Result<net::HttpResponse> answer) { answered.set_value(std::move(answer)); });
  const auto answer = answered.get_future().get();
  if (!answer) return tl::unexpected(answer.error());
  if (answer->status == 404 || answer->status == 405) return ServerInfo{};
  if (answer->status != 200) {
    return fail(ErrorCode::kUnavailable, "{}/v1/models was answered with HTTP {}", client.origin(),
                answer->status);
  }
  return read_models(answer->body);
}

}  // namespace baton::bench
