// What a server says about the model it serves.
#pragma once

#include <string>

#include "net/http_client.h"

namespace baton::bench {

struct ServerInfo {
  std::string model;      ///< id of the first one; empty if it lists none
  int max_model_len = 0;  ///< tokens, where it says so; else 0
};

/// GET /v1/models. kUnavailable if nobody answers within ten seconds, or with a refusal (401, say),
/// whose status is named; a server without that route is {}.
[[nodiscard]] Result<ServerInfo> ask_server(net::HttpClient& client);

/// The answer's body, whatever it is.
[[nodiscard]] ServerInfo read_models(const std::string& body);

}  // namespace baton::bench
