// HTTP/1.1 client over Boost.Beast for talking to one origin: keep-alive connections in a pool,
// whole answers and streams, all of it asynchronous. Boost stays inside http_client.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "net/http.h"

namespace baton::net {

struct HttpClientOptions {
  std::string origin;        ///< "http://127.0.0.1:8001"; a name is resolved once, by create()
  std::string bearer_token;  ///< sent as Authorization: Bearer; empty = none
  std::chrono::milliseconds connect_timeout{2'000};
  uint64_t max_response_bytes = uint64_t{64} << 20;  ///< body of one request()
  uint32_t max_header_bytes = 64 << 10;
  int max_idle_connections = 16;
  std::chrono::milliseconds max_idle_time{30'000};  ///< below what servers allow
};

/// The thread that clients do their I/O on. Shared by any number of them.
class HttpClientThread {
 public:
  HttpClientThread();
  /// Called on the thread itself (out of a callback) too. All clients are gone by then.
  ~HttpClientThread();
  HttpClientThread(const HttpClientThread&) = delete;
  HttpClientThread& operator=(const HttpClientThread&) = delete;

  struct Impl;  ///< of http_client.cc
  [[nodiscard]] const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

/// What a stream reports, in this order, on the I/O thread; none may block.
struct StreamHandlers {
  std::function<void(HttpResponse head)> on_head;        ///< once; whatever the status; no body
  std::function<void(std::string_view chunk)> on_chunk;  ///< any number of times
  /// Once, last: the answer is complete, or why it isn't (kUnavailable: no connection, or it ended;
  /// kCorrupt: not HTTP, or over a limit; kCancelled: by the handle). Messages name origin and
  /// path.
  std::function<void(Status)> on_end;
};

/// A way to end a call before its time. Thread-safe; may outlive call and client.
class HttpCall {
 public:
  HttpCall() = default;
  /// Closes the call's connection; its last callback comes with kCancelled, unless it is under way.
  void cancel() const;

  struct Impl;  ///< of http_client.cc
  explicit HttpCall(std::weak_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::weak_ptr<Impl> impl_;
};

/// Thread-safe. Each call's last callback comes exactly once, on the I/O thread, but never after
/// the destructor has returned: what is under way then is closed and forgotten. (The destructor may
/// run inside a callback; else it waits for the one that runs.)
///
/// A pooled connection that the server closed in the meantime is replaced by a fresh one, once, if
/// nothing of the answer has come: servers close idle connections at any moment.
class HttpClient {
 public:
  using Done = std::function<void(Result<HttpResponse>)>;

  /// `thread`: null = one of its own. kInvalidArgument names what is wrong with the origin.
  [[nodiscard]] static Result<std::unique_ptr<HttpClient>> create(
      HttpClientOptions options, std::shared_ptr<HttpClientThread> thread = nullptr);
  ~HttpClient();

  /// The whole answer, whatever its status. Of `request`, method, path, query, headers and body
  /// count. Takes longer than `timeout` (0 = no limit): kUnavailable.
  HttpCall request(HttpRequest request, std::chrono::milliseconds timeout, Done done);
  /// The answer as it comes, without limits of size or time.
  HttpCall stream(HttpRequest request, StreamHandlers handlers);

  [[nodiscard]] const std::string& origin() const;

  struct State;  ///< of http_client.cc

 private:
  HttpClient(std::shared_ptr<HttpClientThread> thread, std::shared_ptr<State> state)
      : thread_(std::move(thread)), state_(std::move(state)) {}

  std::shared_ptr<HttpClientThread> thread_;
  std::shared_ptr<State> state_;
};

}  // namespace baton::net
