// HTTP/1.1 server over Boost.Beast: keep-alive, chunked bodies, Expect: 100-continue, SSE with
// keep-alive comments, CORS, limits on sizes and times. Boost stays inside http_server.cc.
//
// A client that goes away is noticed while its request is being answered (the socket becomes
// readable with nothing to read), not only at the next write.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "net/http.h"

namespace baton::net {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  ///< address or name to listen on
  uint16_t port = 8000;            ///< 0 = any free one; see HttpServer::port()
  int n_threads = 2;
  uint64_t max_body_bytes = uint64_t{32} << 20;  ///< more is answered with 413
  uint32_t max_header_bytes = 64 << 10;          ///< more is answered with 431
  /// A stream's client that leaves so much unread is cut off: it costs others their memory.
  uint64_t max_unsent_bytes = uint64_t{8} << 20;
  std::string allow_origin;                         ///< CORS; empty = no CORS headers
  std::chrono::milliseconds idle_timeout{75'000};   ///< between two requests of a connection
  std::chrono::milliseconds read_timeout{60'000};   ///< for a whole request to arrive
  std::chrono::milliseconds write_timeout{60'000};  ///< for one write to a client that doesn't read
  std::chrono::milliseconds sse_comment_every{15'000};
};

/// Owns its I/O threads. create() listens at once; requests are answered from start() on.
/// Thread-safe.
class HttpServer {
 public:
  /// Errors: the address can't be resolved, the port is in use (the message names both).
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> create(const HttpServerOptions& options);
  ~HttpServer();

  /// `handler` runs on an I/O thread, on the strand of its connection, and must not block for long.
  void start(HttpHandler handler);
  /// The port listened on.
  [[nodiscard]] uint16_t port() const;
  /// Closes the listening socket and idle connections; running exchanges go on.
  void stop_accepting();
  /// Waits until no exchange is running, at most `timeout`. True if none is left.
  bool wait_idle(std::chrono::milliseconds timeout);
  /// Closes everything and joins the threads. Called by the destructor too.
  void stop();

  struct State;  ///< of http_server.cc

 private:
  explicit HttpServer(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace baton::net
