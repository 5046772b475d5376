// The text of HTTP/1.1 heads and of the errors that the server itself answers with.
#pragma once

#include <string>
#include <string_view>

#include "net/http.h"

namespace baton::net {

/// An OpenAI-style error body. `message` is ours and holds no character that JSON escapes.
[[nodiscard]] std::string error_body(std::string_view message);

/// The answer when the handler's side let go of a request without one, and to a CORS preflight.
[[nodiscard]] HttpResponse dropped_response();
[[nodiscard]] HttpResponse preflight_response();

/// A request without headers and body. `target` is split at '?' and its path decoded ("%20" → " ";
/// malformed escapes stay as they are).
[[nodiscard]] HttpRequest request_of(std::string_view method, std::string_view target);

[[nodiscard]] std::string lower_case(std::string_view ascii);

/// How a request arrived, which decides how its answer goes out.
struct Wire {
  bool http_1_0 = false;
  bool keep_alive = true;
  bool head_only = false;
};

/// How the body of a response is delimited and what the connection does next.
struct Framing {
  std::string header;  ///< a whole header line: Content-Length or Transfer-Encoding, or empty
  bool keep_alive = true;
  std::string allow_origin;  ///< CORS; empty = none
};

/// The head of a client's request to `origin` ("http://host:port"), the empty line included.
/// `bearer_token` may be empty.
[[nodiscard]] std::string request_head(const HttpRequest& request, std::string_view origin,
                                       std::string_view bearer_token);

/// Status line and headers, the empty line included.
[[nodiscard]] std::string response_head(const HttpResponse& response, const Framing& framing);

}  // namespace baton::net
