#include "net/http_client.h"

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <deque>
#include <exception>
#include <future>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "net/http_text.h"
#include "net/socket_peek.h"

namespace baton::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Steady = std::chrono::steady_clock;

constexpr size_t kReadBytes = size_t{64} << 10;
constexpr size_t kBufferBytes = size_t{16} << 10;  ///< of a connection, idle ones included

struct Connection {
  explicit Connection(asio::io_context& io) : stream(io) {
    buffer.reserve(kBufferBytes);  // which is what is read at a time; Beast begins with 512 bytes
  }
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  Steady::time_point idle_since{};
};

}  // namespace

struct HttpClientThread::Impl {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  std::thread thread;

  void run() {
    while (true) {
      try {
        io.run();
        return;
      } catch (const std::exception& e) {
        spdlog::error("HTTP client: {}", e.what());  // by a callback; others go on
      }
    }
  }
  [[nodiscard]] bool on_thread() const { return std::this_thread::get_id() == thread.get_id(); }
};

HttpClientThread::HttpClientThread() : impl_(std::make_shared<Impl>()) {
  // Holds the Impl, so that it may outlive the owner if that ends on the thread itself.
  impl_->thread = std::thread([impl = impl_] { impl->run(); });
}

HttpClientThread::~HttpClientThread() {
  // Clients have closed what they had, so the loop runs out of work.
  impl_->work.reset();
  impl_->on_thread() ? impl_->thread.detach() : impl_->thread.join();
}

/// Members are touched on the I/O thread only, but for those that are const.
struct HttpClient::State {
  State(std::shared_ptr<HttpClientThread::Impl> t, HttpClientOptions o,
        std::vector<tcp::endpoint> e)
      : thread(std::move(t)), options(std::move(o)), endpoints(std::move(e)) {}

  const std::shared_ptr<HttpClientThread::Impl> thread;
  const HttpClientOptions options;
  const std::vector<tcp::endpoint> endpoints;
  bool closed = false;
  std::set<HttpCall::Impl*> calls;
  std::deque<std::unique_ptr<Connection>> idle;  ///< the one used last at the back

  /// A connection that looks alive, or null.
  std::unique_ptr<Connection> take_idle() {
    while (!idle.empty()) {
      auto connection = std::move(idle.back());
      idle.pop_back();
      const bool fresh = Steady::now() - connection->idle_since < options.max_idle_time;
      if (fresh && !peer_gone(connection->stream.socket().native_handle())) return connection;
    }
    return nullptr;
  }
  void give_back(std::unique_ptr<Connection> connection) {
    if (closed || options.max_idle_connections < 1) return;
    if (idle.size() >= static_cast<size_t>(options.max_idle_connections)) idle.pop_front();
    connection->idle_since = Steady::now();
    idle.push_back(std::move(connection));
  }
};

/// One call, from request to its last callback. Lives as long as its coroutine; used on the I/O
/// thread only.
struct HttpCall::Impl : std::enable_shared_from_this<Impl> {
  Impl(std::shared_ptr<HttpClient::State> s, const HttpRequest& request, StreamHandlers h)
      : state(std::move(s)),
        name(state->options.origin + request.path),
        head_only(request.method == "HEAD"),
        handlers(std::make_shared<const StreamHandlers>(std::move(h))),
        deadline(state->thread->io) {}

  const std::shared_ptr<HttpClient::State> state;
  const std::string name;  ///< for messages
  const bool head_only;
  std::string head;
  std::string body;
  uint64_t max_body_bytes = 0;  ///< 0 = no limit
  std::chrono::milliseconds timeout{0};
  std::shared_ptr<const StreamHandlers> handlers;  ///< null once the call is over
  asio::steady_timer deadline;
  std::unique_ptr<Connection> connection;
  bool answer_begun = false;
  bool aborted = false;
  Error abort_reason;

  template <typename... Args>
  [[nodiscard]] Error error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
    return {code, name + ": " + fmt::format(format, std::forward<Args>(args)...), false};
  }

  void abort(Error reason) {
    if (std::exchange(aborted, true)) return;
    abort_reason = std::move(reason);
    if (connection) connection->stream.close();
  }

  /// The last callback.
  void end(Status status) {
    deadline.cancel();
    state->calls.erase(this);
    const auto last = std::exchange(handlers, nullptr);
    if (last && last->on_end) last->on_end(std::move(status));
  }

  /// Without any callback: the client goes.
  void forget() {
    handlers = nullptr;
    deadline.cancel();
    abort({});
  }

  void start_deadline() {
    if (timeout.count() <= 0) return;
    deadline.expires_after(timeout);
    deadline.async_wait([weak = weak_from_this()](const error_code& ec) {
      const auto self = weak.lock();
      if (ec || !self || !self->handlers) return;
      self->abort(
          self->error(ErrorCode::kUnavailable, "no answer within {} ms", self->timeout.count()));
    });
  }

  asio::awaitable<Status> run() {
    if (aborted) co_return tl::unexpected(abort_reason);
    connection = state->take_idle();
    if (connection) {
      auto status = co_await exchange();
      if (status || answer_begun || aborted) co_return status;
      // The server had closed it; a fresh one says what is really the matter.
    }
    connection = std::make_unique<Connection>(state->thread->io);
    if (auto status = co_await connect(); !status) co_return status;
    co_return co_await exchange();
  }

 private:
  using Parser = http::response_parser<http::buffer_body>;

  [[nodiscard]] tl::unexpected<Error> failure(const error_code& ec, std::string_view what) {
    if (aborted) return tl::unexpected(abort_reason);
    const bool of_parser =
        ec.category() == http::make_error_code(http::error::bad_method).category();
    const bool ended = ec == http::error::end_of_stream || ec == http::error::partial_message;
    if (ended) {
      return tl::unexpected(error(ErrorCode::kUnavailable, "{}: the connection ended {} the answer",
                                  what, answer_begun ? "in the middle of" : "before"));
    }
    if (ec == http::error::body_limit) {
      return tl::unexpected(
          error(ErrorCode::kCorrupt, "the answer is over {} bytes", max_body_bytes));
    }
    return tl::unexpected(error(of_parser ? ErrorCode::kCorrupt : ErrorCode::kUnavailable, "{}: {}",
                                what, ec.message()));
  }

  asio::awaitable<Status> connect() {
    auto& stream = connection->stream;
    stream.expires_after(state->options.connect_timeout);
    error_code ec;
    co_await stream.async_connect(state->endpoints, asio::redirect_error(asio::use_awaitable, ec));
    stream.expires_never();
    if (ec || aborted) co_return failure(ec, "can't connect");
    stream.socket().set_option(tcp::no_delay(true), ec);
    co_return Status{};
  }

  /// Sends the request and reports the answer, all but its end.
  asio::awaitable<Status> exchange() {
    error_code ec;
    const std::array<asio::const_buffer, 2> out{asio::buffer(head), asio::buffer(body)};
    co_await asio::async_write(connection->stream, out,
                               asio::redirect_error(asio::use_awaitable, ec));
    // A server may answer (413, say) and close before it has read everything: look for the answer.
    if (aborted) co_return failure(ec, "can't send");
    const error_code write_error = ec;
    Parser parser;
    parser.header_limit(state->options.max_header_bytes);
    parser.skip(head_only);
    max_body_bytes > 0 ? parser.body_limit(max_body_bytes) : parser.body_limit(boost::none);
    co_await http::async_read_header(connection->stream, connection->buffer, parser,
                                     asio::redirect_error(asio::use_awaitable, ec));
    answer_begun = parser.got_some() || connection->buffer.size() > 0;
    if (ec || aborted) {
      co_return write_error && !answer_begun ? failure(write_error, "can't send")
                                             : failure(ec, "no valid answer");
    }
    report_head(parser);
    if (auto status = co_await read_body(parser); !status) co_return status;
    if (parser.keep_alive() && !write_error && connection->buffer.size() == 0) {
      state->give_back(std::move(connection));
    }
    co_return Status{};
  }

  void report_head(const Parser& parser) {
    const auto& message = parser.get();
    HttpResponse response;
    response.status = static_cast<int>(message.result_int());
    response.content_type = std::string(message[http::field::content_type]);
    for (const auto& field : message) {
      response.headers[lower_case(field.name_string())] = std::string(field.value());
    }
    const auto now = handlers;  // a callback may destroy the client, which lets go of them
    if (now && now->on_head) now->on_head(std::move(response));
  }

  asio::awaitable<Status> read_body(Parser& parser) {
    std::string chunk(kReadBytes, '\0');
    while (!parser.is_done()) {
      if (aborted) co_return failure({}, "");
      auto& to = parser.get().body();
      to.data = chunk.data();
      to.size = chunk.size();
      error_code ec;
      co_await http::async_read_some(connection->stream, connection->buffer, parser,
                                     asio::redirect_error(asio::use_awaitable, ec));
      if (ec == http::error::need_buffer) ec = {};
      if (aborted) co_return failure(ec, "");
      const size_t n = chunk.size() - to.size;
      const auto now = handlers;
      if (n > 0 && now && now->on_chunk) now->on_chunk(std::string_view(chunk).substr(0, n));
      if (ec) co_return failure(ec, "broken answer");
    }
    if (aborted) co_return failure({}, "");
    co_return Status{};
  }
};

void HttpCall::cancel() const {
  const auto impl = impl_.lock();
  if (!impl) return;
  asio::post(impl->state->thread->io, [weak = impl_] {
    const auto call = weak.lock();
    if (call && call->handlers) call->abort(call->error(ErrorCode::kCancelled, "cancelled"));
  });
}

namespace {

asio::awaitable<void> run(std::shared_ptr<HttpCall::Impl> call) {
  Status status = co_await call->run();
  call->connection = nullptr;
  call->end(std::move(status));
}

HttpCall start(const std::shared_ptr<HttpClient::State>& state,
               std::shared_ptr<HttpCall::Impl> call, HttpRequest request) {
  call->head = request_head(request, state->options.origin, state->options.bearer_token);
  call->body = std::move(request.body);
  HttpCall handle{std::weak_ptr(call)};
  asio::post(state->thread->io, [state, call = std::move(call)]() mutable {
    if (state->closed) return call->forget();
    state->calls.insert(call.get());
    call->start_deadline();
    asio::co_spawn(state->thread->io, run(call), [call](const std::exception_ptr& error) {
      if (!error) return;
      call->end(tl::unexpected(call->error(ErrorCode::kInternal, "the call failed")));
      std::rethrow_exception(error);  // to the log
    });
  });
  return handle;
}

/// "127.0.0.1" and "8001" of "http://127.0.0.1:8001"; an IPv6 address stands in brackets.
Result<std::pair<std::string, std::string>> host_and_port(std::string_view origin) {
  constexpr std::string_view kScheme = "http://";
  const auto wrong = [&] {
    return fail(ErrorCode::kInvalidArgument, "'{}' is not of the form http://HOST:PORT", origin);
  };
  if (!origin.starts_with(kScheme)) return wrong();
  std::string_view rest = origin.substr(kScheme.size());
  const size_t colon = rest.rfind(':');
  if (colon == rest.npos || colon == 0) return wrong();
  std::string_view host = rest.substr(0, colon);
  const std::string_view port = rest.substr(colon + 1);
  if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != port.npos ||
      host.find_first_of("/?#@ \r\n") != host.npos) {
    return wrong();
  }
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return std::pair{std::string(host), std::string(port)};
}

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::create(HttpClientOptions options,
                                                       std::shared_ptr<HttpClientThread> thread) {
  const auto address = host_and_port(options.origin);
  if (!address) return tl::unexpected(address.error());
  if (!thread) thread = std::make_shared<HttpClientThread>();
  error_code ec;
  tcp::resolver resolver(thread->impl()->io);
  std::vector<tcp::endpoint> endpoints;
  for (const auto& found : resolver.resolve(address->first, address->second, ec)) {
    endpoints.push_back(found.endpoint());
  }
  if (ec || endpoints.empty()) {
    return fail(ErrorCode::kInvalidArgument, "{}: can't resolve '{}': {}", options.origin,
                address->first, ec.message());
  }
  auto state = std::make_shared<State>(thread->impl(), std::move(options), std::move(endpoints));
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(thread), std::move(state)));
}

HttpClient::~HttpClient() {
  const auto close = [state = state_] {
    state->closed = true;
    state->idle.clear();
    for (HttpCall::Impl* call : state->calls) call->forget();
  };
  if (state_->thread->on_thread()) {
    close();
    return;
  }
  std::promise<void> closed;
  asio::post(state_->thread->io, [&] {
    close();
    closed.set_value();
  });
  closed.get_future().wait();
}

HttpCall HttpClient::stream(HttpRequest request, StreamHandlers handlers) {
  auto call = std::make_shared<HttpCall::Impl>(state_, request, std::move(handlers));
  return start(state_, std::move(call), std::move(request));
}

HttpCall HttpClient::request(HttpRequest request, std::chrono::milliseconds timeout, Done done) {
  // A stream whose pieces are gathered.
  const auto answer = std::make_shared<HttpResponse>();
  StreamHandlers handlers;
  handlers.on_head = [answer](HttpResponse head) { *answer = std::move(head); };
  handlers.on_chunk = [answer](std::string_view chunk) { answer->body += chunk; };
  handlers.on_end = [answer, done = std::move(done)](Status status) {
    if (!status) return done(tl::unexpected(std::move(status.error())));
    done(std::move(*answer));
  };
  auto call = std::make_shared<HttpCall::Impl>(state_, request, std::move(handlers));
  call->timeout = timeout;
  call->max_body_bytes = state_->options.max_response_bytes;
  return start(state_, std::move(call), std::move(request));
}

const std::string& HttpClient::origin() const { return state_->options.origin; }

}  // namespace baton::net
