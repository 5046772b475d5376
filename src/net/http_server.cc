#include "net/http_server.h"

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <mutex>
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
using Executor = asio::strand<asio::io_context::executor_type>;
using Stream = beast::basic_stream<tcp, Executor>;
using boost::system::error_code;

class Session;
/// What is read from a connection at a time; Beast begins with 512 bytes and keeps to that.
constexpr size_t kBufferBytes = size_t{16} << 10;
}  // namespace

/// What the connections share.
struct HttpServer::State : std::enable_shared_from_this<State> {
  explicit State(HttpServerOptions o) : options(std::move(o)), acceptor(asio::make_strand(io)) {}

  const HttpServerOptions options;
  asio::io_context io;
  tcp::acceptor acceptor;
  HttpHandler handler;
  std::vector<std::thread> threads;
  std::atomic<bool> draining{false};
  std::atomic<bool> stopped{false};

  /// Counts one exchange as running while the result lives.
  std::shared_ptr<void> count_exchange() {
    change_running(+1);
    return {nullptr, [state = shared_from_this()](void*) { state->change_running(-1); }};
  }
  void change_running(int by) {
    const std::lock_guard lock(mutex);
    n_running += by;
    idle.notify_all();
  }
  std::mutex mutex;  // guards what follows
  std::condition_variable idle;
  int n_running = 0;  ///< exchanges being answered
  std::set<Session*> sessions;
};

namespace {

using State = HttpServer::State;

/// The answer to one request. Its public calls come from any thread and hop to the connection's
/// strand; members are touched on the strand only.
class Exchange final : public HttpExchange, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<State> state, const Executor& strand, HttpRequest request, Wire wire)
      : state_(std::move(state)),
        strand_(strand),
        wake_(strand),
        again_(strand),
        request_(std::move(request)),
        wire_(wire) {}

  [[nodiscard]] const HttpRequest& request() const override { return request_; }

  void respond(HttpResponse response) override {
    on_strand([this, response = std::move(response)] {
      if (headed_) return;
      headed_ = true;
      const bool no_body = response.status == 204;
      out_ += response_head(
          response,
          framing(no_body ? "" : fmt::format("Content-Length: {}\r\n", response.body.size())));
      if (!wire_.head_only) out_ += response.body;
      finish();
    });
  }

  void start_stream(HttpResponse head) override {
    on_strand([this, head = std::move(head)] {
      if (headed_) return;
      headed_ = true;
      chunked_ = !wire_.http_1_0;
      wire_.keep_alive = wire_.keep_alive && chunked_;
      sse_ = head.content_type.starts_with("text/event-stream");
      out_ += response_head(head, framing(chunked_ ? "Transfer-Encoding: chunked\r\n" : ""));
      wake_.cancel();
    });
  }

  void write(std::string chunk) override {
    if (chunk.empty()) return;
    on_strand([this, chunk = std::move(chunk)] { append(chunk); });
  }

  void end() override {
    on_strand([this] {
      if (chunked_) out_ += "0\r\n\r\n";
      finish();
    });
  }

  void post(std::function<void()> task) override {
    if (state_->stopped) return;
    asio::post(strand_, [self = shared_from_this(), task = std::move(task)] { task(); });
  }

  void on_close(std::function<void()> callback) override {
    on_strand(
        [this, callback = std::move(callback)]() mutable { on_close_ = std::move(callback); });
  }

  /// Sends what is produced until the answer is complete (true) or the client gone (false).
  asio::awaitable<bool> run(Stream& stream) {
    watch(stream);
    while (true) {
      if (gone_) co_return false;
      if (!out_.empty()) {
        sending_.clear();
        sending_.swap(out_);
        stream.expires_after(state_->options.write_timeout);
        error_code ec;
        co_await asio::async_write(stream, asio::buffer(sending_),
                                   asio::redirect_error(asio::use_awaitable, ec));
        stream.expires_never();
        if (ec) {
          lost();
          co_return false;
        }
        continue;
      }
      if (done_) co_return true;
      error_code ec;
      wake_.expires_after(sse_ ? state_->options.sse_comment_every : std::chrono::hours(24));
      co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
      if (!ec && sse_ && !done_) append(": keep-alive\n\n");  // so that no proxy closes it
    }
  }

  /// The client went away or the server stops: tells the handler's side, once.
  void lost() {
    if (gone_) return;
    gone_ = true;
    wake_.cancel();
    if (!done_ && on_close_) std::exchange(on_close_, nullptr)();
    on_close_ = nullptr;
  }

  [[nodiscard]] bool stays_open() const { return wire_.keep_alive && !state_->draining; }

 private:
  template <typename Fn>
  void on_strand(Fn fn) {
    // What is queued after the end would hold this, this holds the state, and that the queue.
    if (state_->stopped) return;
    // dispatch runs at once when already on the strand, so that order is kept and no hop is paid.
    asio::dispatch(strand_, [self = shared_from_this(), fn = std::move(fn)]() mutable {
      if (!self->gone_ && !self->done_) fn();
    });
  }

  [[nodiscard]] Framing framing(std::string header) const {
    return {std::move(header), stays_open(), state_->options.allow_origin};
  }

  void append(std::string_view data) {
    if (out_.size() > state_->options.max_unsent_bytes) return lost();
    if (chunked_) {
      out_ += fmt::format("{:x}\r\n", data.size());
      out_ += data;
      out_ += "\r\n";
    } else {
      out_ += data;
    }
    wake_.cancel();
  }

  void finish() {
    done_ = true;
    on_close_ = nullptr;
    wake_.cancel();
  }

  /// Notices a client that closes while it waits. Another event (a pipelined request, or an old one
  /// whose data has been read since) only means to look again soon.
  void watch(Stream& stream) {
    const auto check = [self = shared_from_this(), &stream](const error_code& ec) {
      if (ec || self->done_ || self->gone_) return;  // `stream` may be gone too
      if (peer_gone(stream.socket().native_handle())) return self->lost();
      self->again_.expires_after(std::chrono::milliseconds(100));
      // Weak: a pending timer must not keep its exchange, and with it the server, alive.
      self->again_.async_wait([weak = self->weak_from_this(), &stream](const error_code&) {
        const auto alive = weak.lock();
        if (alive && !alive->done_ && !alive->gone_) alive->watch(stream);
      });
    };
    stream.socket().async_wait(tcp::socket::wait_read, check);
  }

  const std::shared_ptr<State> state_;
  const Executor strand_;
  asio::steady_timer wake_;   ///< cancelled whenever there is something new to do
  asio::steady_timer again_;  ///< of watch()
  const HttpRequest request_;
  Wire wire_;
  bool headed_ = false;  ///< status line written
  bool chunked_ = false;
  bool sse_ = false;
  bool done_ = false;  ///< the whole answer is in out_
  bool gone_ = false;
  std::string out_;  ///< produced, not yet handed to the socket
  std::string sending_;
  std::function<void()> on_close_;
};

/// For the handler to hold: 500 if all holders let go without an answer. Posted: behind any answer.
std::shared_ptr<HttpExchange> guarded(const std::shared_ptr<Exchange>& exchange) {
  const auto drop = [exchange] {
    exchange->respond(dropped_response());
    exchange->end();
  };
  return {exchange.get(), [exchange, drop](HttpExchange*) { exchange->post(drop); }};
}

/// One connection: reads requests one after another and answers each. Lives as long as its
/// coroutine.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<State> state, Stream stream)
      : state_(std::move(state)), stream_(std::move(stream)) {
    buffer_.reserve(kBufferBytes);
    const std::lock_guard lock(state_->mutex);
    state_->sessions.insert(this);
  }

  ~Session() {
    const std::lock_guard lock(state_->mutex);
    state_->sessions.erase(this);
  }

  asio::awaitable<void> run() {
    const auto self = shared_from_this();
    while (co_await serve_one()) continue;
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  }

  /// From any thread: closes if `all`, or if no request is being answered.
  void close(bool all) {
    asio::dispatch(stream_.get_executor(), [weak = weak_from_this(), all] {
      const auto self = weak.lock();
      if (!self || (self->exchange_ && !all)) return;
      if (self->exchange_) self->exchange_->lost();
      error_code ignored;
      self->stream_.socket().close(ignored);
    });
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  asio::awaitable<bool> refuse(int status, std::string message) {
    const std::string body = error_body(message);
    std::string out = response_head(
        {status, "application/json", {}, {}},
        {fmt::format("Content-Length: {}\r\n", body.size()), false, state_->options.allow_origin});
    out += body;
    error_code ec;
    stream_.expires_after(state_->options.write_timeout);
    co_await asio::async_write(stream_, asio::buffer(out),
                               asio::redirect_error(asio::use_awaitable, ec));
    // Read what is still under way, so that closing doesn't reset the connection under the answer.
    stream_.socket().shutdown(tcp::socket::shutdown_send, ec);
    stream_.expires_after(std::chrono::seconds(2));
    std::string sink(1 << 16, '\0');
    for (uint64_t drained = 0; !ec && drained < state_->options.max_body_bytes * 2;) {
      drained += co_await stream_.async_read_some(asio::buffer(sink),
                                                  asio::redirect_error(asio::use_awaitable, ec));
    }
    co_return false;
  }

  /// Reads the header and body of the next request. False: the connection is over.
  asio::awaitable<bool> read(Parser& parser) {
    parser.header_limit(state_->options.max_header_bytes);
    parser.body_limit(state_->options.max_body_bytes);
    error_code ec;
    stream_.expires_after(state_->options.idle_timeout);
    co_await http::async_read_header(stream_, buffer_, parser,
                                     asio::redirect_error(asio::use_awaitable, ec));
    if (ec == http::error::header_limit)
      co_return co_await refuse(431, "the headers are too large");
    if (ec == http::error::body_limit) co_return co_await refuse_body();
    if (malformed(ec)) co_return co_await refuse(400, "this is not an HTTP/1.1 request");
    if (ec) co_return false;
    if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(stream_, asio::buffer(kContinue),
                                 asio::redirect_error(asio::use_awaitable, ec));
      if (ec) co_return false;
    }
    stream_.expires_after(state_->options.read_timeout);
    co_await http::async_read(stream_, buffer_, parser,
                              asio::redirect_error(asio::use_awaitable, ec));
    stream_.expires_never();
    if (ec == http::error::body_limit) co_return co_await refuse_body();
    if (ec == beast::error::timeout)
      co_return co_await refuse(408, "the body did not arrive in time");
    if (malformed(ec)) co_return co_await refuse(400, "the body is not framed as HTTP/1.1 wants");
    co_return !ec;
  }

  /// The parser's complaint, as opposed to a connection that ended.
  static bool malformed(const error_code& ec) {
    return ec && ec != http::error::end_of_stream && ec != http::error::partial_message &&
           ec.category() == http::make_error_code(http::error::bad_method).category();
  }

  asio::awaitable<bool> refuse_body() {
    return refuse(413, fmt::format("the body is over {} bytes", state_->options.max_body_bytes));
  }

  /// An exception (out of memory, say) costs this request, answered with 500, and no other.
  void call_handler(std::shared_ptr<HttpExchange> exchange) {
    try {
      return state_->handler(std::move(exchange));
    } catch (const std::exception& e) {
      spdlog::error("request handler: {}", e.what());
    }
  }

  asio::awaitable<bool> serve_one() {
    Parser parser;
    if (!co_await read(parser)) co_return false;
    auto& message = parser.get();
    HttpRequest request = request_of(message.method_string(), message.target());
    for (const auto& field : message) {
      request.headers[lower_case(field.name_string())] = std::string(field.value());
    }
    request.body = std::move(message.body());
    // HEAD is GET whose body stays here.
    const Wire wire{message.version() == 10, message.keep_alive(), request.method == "HEAD"};
    if (wire.head_only) request.method = "GET";
    auto exchange =
        std::make_shared<Exchange>(state_, stream_.get_executor(), std::move(request), wire);
    exchange_ = exchange;
    const auto running = state_->count_exchange();
    if (!state_->options.allow_origin.empty() && exchange->request().method == "OPTIONS") {
      exchange->respond(preflight_response());
    } else {
      call_handler(guarded(exchange));
    }
    const bool complete = co_await exchange->run(stream_);
    error_code ignored;
    stream_.socket().cancel(ignored);  // the watch for a closing client
    exchange_ = nullptr;
    co_return complete && exchange->stays_open();
  }

  std::shared_ptr<State> state_;
  Stream stream_;
  beast::flat_buffer buffer_;
  std::shared_ptr<Exchange> exchange_;  ///< the one being answered
};

/// An exception of one task must not end the thread that serves all others.
void run_io(asio::io_context& io) {
  while (!io.stopped()) {
    try {
      io.run();
    } catch (const std::exception& e) {
      spdlog::error("I/O task: {}", e.what());
    }
  }
}

asio::awaitable<void> accept_all(std::shared_ptr<State> state) {
  while (true) {
    error_code ec;
    auto strand = asio::make_strand(state->io);
    auto socket = co_await state->acceptor.async_accept(
        strand, asio::redirect_error(asio::use_awaitable, ec));
    if (ec == asio::error::operation_aborted || !state->acceptor.is_open()) co_return;
    if (ec) {
      spdlog::warn("accept: {}", ec.message());  // out of file descriptors, say: try again soon
      asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(100));
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ec));
      continue;
    }
    socket.set_option(tcp::no_delay(true), ec);
    auto session = std::make_shared<Session>(state, Stream(std::move(socket)));
    asio::co_spawn(strand, session->run(), [session](const std::exception_ptr& error) {
      if (error) spdlog::error("a connection ended by an exception");  // out of memory, say
    });
  }
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::create(const HttpServerOptions& options) {
  auto state = std::make_shared<State>(options);
  error_code ec;
  tcp::resolver resolver(state->io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port), ec);
  if (ec || found.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--host {}: {}", options.host, ec.message());
  }
  const tcp::endpoint endpoint = *found.begin();
  auto& acceptor = state->acceptor;
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(1024, ec);
  if (ec) {
    return fail(ErrorCode::kIo, "can't listen on --host {} --port {}: {}", options.host,
                options.port, ec.message());
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::HttpServer(std::shared_ptr<State> state) : state_(std::move(state)) {}
HttpServer::~HttpServer() { stop(); }
void HttpServer::start(HttpHandler handler) {
  state_->handler = std::move(handler);
  asio::co_spawn(state_->acceptor.get_executor(), accept_all(state_), asio::detached);
  for (int i = 0; i < state_->options.n_threads; ++i) {
    state_->threads.emplace_back([state = state_] { run_io(state->io); });
  }
}

uint16_t HttpServer::port() const {
  error_code ignored;
  return state_->acceptor.local_endpoint(ignored).port();
}

void HttpServer::stop_accepting() {
  if (state_->draining.exchange(true)) return;
  asio::dispatch(state_->acceptor.get_executor(), [state = state_] {
    error_code ignored;
    state->acceptor.close(ignored);
  });
  const std::lock_guard lock(state_->mutex);
  for (Session* session : state_->sessions) session->close(false);
}

bool HttpServer::wait_idle(std::chrono::milliseconds timeout) {
  std::unique_lock lock(state_->mutex);
  return state_->idle.wait_for(lock, timeout, [this] { return state_->n_running == 0; });
}

void HttpServer::stop() {
  stop_accepting();
  {
    const std::lock_guard lock(state_->mutex);
    for (Session* session : state_->sessions) session->close(true);
  }
  // Give the closing tasks their turn, then end the loops whatever is left.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!state_->threads.empty() && std::chrono::steady_clock::now() < deadline) {
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->sessions.empty()) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  state_->io.stop();
  for (auto& thread : state_->threads) thread.join();
  state_->threads.clear();
  state_->stopped = true;
  state_->io.restart();
  state_->io.poll();  // what was queued between the two
}

}  // namespace baton::net
