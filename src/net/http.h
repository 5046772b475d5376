// One HTTP request being answered, as the layers above see it: no sockets, no Boost. Implemented by
// http_server.h; tests of the frontend use a recording stand-in.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace baton::net {

struct HttpRequest {
  std::string method;                          ///< "GET", "POST", …
  std::string path;                            ///< without the query, percent-decoding undone
  std::string query;                           ///< after '?', as sent
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::map<std::string, std::string> headers;  ///< further ones, e.g. Retry-After
  std::string body;
};

/// One request and the way to answer it: either respond() once, or start_stream(), write() any
/// number of times, end(). Thread-safe; calls after the client has gone are ignored. Held by
/// shared_ptr; if the last holder lets go without an answer, the server answers 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  [[nodiscard]] virtual const HttpRequest& request() const = 0;
  virtual void respond(HttpResponse response) = 0;
  /// Sends status and headers; the body follows. For content type text/event-stream the server
  /// itself writes an SSE comment whenever nothing was sent for 15 s.
  virtual void start_stream(HttpResponse head) = 0;
  virtual void write(std::string chunk) = 0;
  virtual void end() = 0;
  /// Runs `task` on the connection's own strand: tasks of one exchange never overlap and keep their
  /// order, and run on an I/O thread. This is how a backend's thread hands work over.
  virtual void post(std::function<void()> task) = 0;
  /// `callback` runs once, on the strand, if the client goes away before the answer is complete.
  virtual void on_close(std::function<void()> callback) = 0;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

}  // namespace baton::net
