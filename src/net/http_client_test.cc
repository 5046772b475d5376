#include "net/http_client.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "net/http_server.h"

namespace baton::net {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<HttpServer> start(HttpHandler handler) {
  HttpServerOptions options;
  options.port = 0;
  auto server = HttpServer::create(options);
  EXPECT_TRUE(server.has_value());
  (*server)->start(std::move(handler));
  return std::move(*server);
}

std::string origin(uint16_t port) { return fmt::format("http://127.0.0.1:{}", port); }

HttpClientOptions options_of(uint16_t port) {
  HttpClientOptions options;
  options.origin = origin(port);
  return options;
}

std::unique_ptr<HttpClient> client_of(uint16_t port, HttpClientOptions options = {}) {
  options.origin = origin(port);
  auto client = HttpClient::create(options);
  EXPECT_TRUE(client.has_value());
  return std::move(*client);
}

HttpRequest post(std::string path, std::string body) {
  return {.method = "POST",
          .path = std::move(path),
          .query = {},
          .headers = {},
          .body = std::move(body)};
}

HttpRequest get(std::string path) {
  return {.method = "GET", .path = std::move(path), .query = {}, .headers = {}, .body = {}};
}

Result<HttpResponse> ask(HttpClient& client, HttpRequest request,
                         std::chrono::milliseconds timeout = 10s) {
  std::promise<Result<HttpResponse>> answer;
  client.request(std::move(request), timeout,
                 [&](Result<HttpResponse> result) { answer.set_value(std::move(result)); });
  return answer.get_future().get();
}

/// What a stream reported, to wait for.
class Recorder {
 public:
  StreamHandlers handlers() {
    return {.on_head = [this](HttpResponse head) { note([&] { status = head.status; }); },
            .on_chunk = [this](std::string_view chunk) { note([&] { body += chunk; }); },
            .on_end = [this](Status end) { note([&] { ended.push_back(std::move(end)); }); }};
  }
  template <typename Condition>
  bool wait_for(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 10s, condition);
  }
  bool wait_for_end() {
    return wait_for([this] { return !ended.empty(); });
  }
  int status = 0;
  std::string body;
  std::vector<Status> ended;

 private:
  template <typename Change>
  void note(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// A server without manners: each connection is given to `serve` with its number, then closed.
class RawServer {
 public:
  explicit RawServer(std::function<void(int fd, int n)> serve) : serve_(std::move(serve)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      for (int n = 0;; ++n) {
        const int fd = ::accept(listener_, nullptr, nullptr);
        if (fd < 0) return;
        serve_(fd, n);
        ::close(fd);
      }
    });
  }
  ~RawServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  /// Reads one request without a body.
  static bool read_request(int fd) {
    std::string got;
    char byte = 0;
    while (!got.ends_with("\r\n\r\n")) {
      if (::recv(fd, &byte, 1, 0) != 1) return false;
      got += byte;
    }
    return true;
  }
  static void send(int fd, std::string_view text) {
    EXPECT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  uint16_t port = 0;

 private:
  std::function<void(int, int)> serve_;
  int listener_ = -1;
  std::thread thread_;
};

constexpr const char* kHello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

TEST(HttpClient, SendsAllOfTheRequestAndGivesAllOfTheAnswer) {
  const auto server = start([](std::shared_ptr<HttpExchange> exchange) {
    const auto& r = exchange->request();
    exchange->respond({201,
                       "text/plain",
                       {{"X-Seen", r.path + "|" + r.query}},
                       r.method + ":" + r.headers.at("authorization") + ":" +
                           r.headers.at("x-more") + ":" + r.body});
  });
  HttpClientOptions options;
  options.bearer_token = "secret";
  const auto client = client_of(server->port(), options);
  auto request = post("/a b/\xC3\xA4", "body");
  request.query = "x=1";
  request.headers["X-More"] = "one\r\nX-Evil: two";
  const auto answer = ask(*client, request);
  ASSERT_TRUE(answer.has_value()) << answer.error().message;
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->content_type, "text/plain");
  EXPECT_EQ(answer->headers.at("x-seen"), "/a b/\xC3\xA4|x=1");
  EXPECT_EQ(answer->body, "POST:Bearer secret:oneX-Evil: two:body");
}

TEST(HttpClient, AThousandRequestsInParallelGetTheirOwnAnswers) {
  const auto server = start([](std::shared_ptr<HttpExchange> exchange) {
    exchange->respond({200, "text/plain", {}, exchange->request().body});
  });
  const auto client = client_of(server->port());
  constexpr int kRequests = 1000;
  std::atomic<int> n_right{0};
  std::mutex mutex;
  std::condition_variable changed;
  int n_under_way = 0;
  for (int i = 0; i < kRequests; ++i) {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return n_under_way < 32; });
      ++n_under_way;
    }
    const std::string body = std::to_string(i) + std::string(static_cast<size_t>(i) * 100, 'x');
    client->request(post("/", body), 0ms, [&, body](Result<HttpResponse> answer) {
      if (answer && answer->body == body) ++n_right;
      const std::lock_guard lock(mutex);
      --n_under_way;
      changed.notify_all();
    });
  }
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, 30s, [&] { return n_under_way == 0; }));
  EXPECT_EQ(n_right, kRequests);
}

TEST(HttpClient, KeepsItsConnection) {
  std::atomic<int> n_connections{0};
  RawServer server([&](int fd, int) {
    ++n_connections;
    while (RawServer::read_request(fd)) RawServer::send(fd, kHello);
  });
  {
    const auto client = client_of(server.port);
    for (int i = 0; i < 5; ++i) {
      const auto answer = ask(*client, get("/"));
      ASSERT_TRUE(answer.has_value()) << answer.error().message;
      EXPECT_EQ(answer->body, "hello");
    }
  }
  EXPECT_EQ(n_connections, 1);
}

TEST(HttpClient, ReplacesAConnectionThatTheServerClosed) {
  // Closed before the next request, and closed as an answer to it.
  for (const bool at_request : {false, true}) {
    std::promise<void> closed;
    RawServer server([&](int fd, int n) {
      if (!RawServer::read_request(fd)) return;
      RawServer::send(fd, kHello);
      if (n == 0 && at_request) RawServer::read_request(fd);
      if (n == 0) {
        ::shutdown(fd, SHUT_RDWR);
        closed.set_value();
      }
    });
    const auto client = client_of(server.port);
    ASSERT_TRUE(ask(*client, get("/")).has_value());
    if (!at_request) closed.get_future().wait();
    const auto answer = ask(*client, get("/"));
    EXPECT_TRUE(answer.has_value()) << answer.error().message;
  }
}

TEST(HttpClient, AFreshConnectionThatEndsIsNotTriedAgain) {
  std::atomic<int> n_connections{0};
  RawServer server([&](int fd, int) {
    ++n_connections;
    RawServer::read_request(fd);
  });
  const auto client = client_of(server.port);
  const auto answer = ask(*client, get("/x"));
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(answer.error().message.find(origin(server.port) + "/x"), std::string::npos)
      << answer.error().message;
  EXPECT_EQ(n_connections, 1);
}

TEST(HttpClient, AnAnswerThatBreaksOffIsAnErrorAndNotTriedAgain) {
  for (const bool chunked : {false, true}) {
    std::atomic<int> n_requests{0};
    RawServer server([&](int fd, int) {
      RawServer::read_request(fd);
      ++n_requests;
      RawServer::send(fd, kHello);
      RawServer::read_request(fd);
      ++n_requests;
      RawServer::send(fd, chunked
                              ? "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhal\r\n"
                              : "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhal");
    });
    const auto client = client_of(server.port);
    ASSERT_TRUE(ask(*client, get("/")).has_value());
    Recorder recorder;
    client->stream(get("/broken"), recorder.handlers());
    ASSERT_TRUE(recorder.wait_for_end());
    EXPECT_EQ(recorder.body, "hal");
    ASSERT_FALSE(recorder.ended.front().has_value());
    EXPECT_EQ(recorder.ended.front().error().code, ErrorCode::kUnavailable);
    EXPECT_NE(recorder.ended.front().error().message.find("in the middle"), std::string::npos);
    EXPECT_EQ(n_requests, 2);
  }
}

TEST(HttpClient, NonsenseAndTooLargeAnswersAreCorrupt) {
  for (const char* nonsense :
       {"SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello"}) {
    RawServer server([&](int fd, int) {
      RawServer::read_request(fd);
      RawServer::send(fd, nonsense);
      RawServer::read_request(fd);
    });
    HttpClientOptions options;
    options.max_response_bytes = 10;
    const auto client = client_of(server.port, options);
    const auto answer = ask(*client, get("/"));
    ASSERT_FALSE(answer.has_value()) << nonsense;
    EXPECT_EQ(answer.error().code, ErrorCode::kCorrupt) << answer.error().message;
  }
}

TEST(HttpClient, NobodyListening) {
  uint16_t port = 0;
  {
    port = RawServer([](int, int) {}).port;
  }
  const auto client = client_of(port);
  const auto answer = ask(*client, get("/"));
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(answer.error().message.find("can't connect"), std::string::npos);
}

TEST(HttpClient, ATimeoutClosesTheConnection) {
  std::promise<void> closed;
  std::shared_ptr<HttpExchange> held;
  const auto server = start([&](std::shared_ptr<HttpExchange> exchange) {
    exchange->on_close([&] { closed.set_value(); });
    held = std::move(exchange);
  });
  const auto client = client_of(server->port());
  const auto answer = ask(*client, get("/slow"), 20ms);
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(answer.error().message.find("20 ms"), std::string::npos);
  EXPECT_EQ(closed.get_future().wait_for(10s), std::future_status::ready);
}

TEST(HttpClient, AStreamComesPieceByPiece) {
  std::promise<std::shared_ptr<HttpExchange>> reached;
  const auto server =
      start([&](std::shared_ptr<HttpExchange> e) { reached.set_value(std::move(e)); });
  const auto client = client_of(server->port());
  Recorder recorder;
  client->stream(post("/", "{}"), recorder.handlers());
  const auto exchange = reached.get_future().get();
  exchange->start_stream({200, "application/x-ndjson", {}, ""});
  EXPECT_TRUE(recorder.wait_for([&] { return recorder.status == 200; }));
  std::string sent;
  for (int i = 0; i < 20; ++i) {
    const std::string chunk(static_cast<size_t>(i) * 10'000 + 1, static_cast<char>('a' + i));
    sent += chunk;
    exchange->write(chunk);
    EXPECT_TRUE(recorder.wait_for([&] { return recorder.body.size() == sent.size(); }));
  }
  EXPECT_EQ(recorder.body, sent);
  exchange->end();
  ASSERT_TRUE(recorder.wait_for_end());
  EXPECT_TRUE(recorder.ended.front().has_value());
}

TEST(HttpClient, CancelClosesTheConnectionAndIsReported) {
  for (const bool streaming : {false, true}) {
    std::promise<void> reached;
    std::promise<void> closed;
    std::shared_ptr<HttpExchange> held;
    const auto server = start([&](std::shared_ptr<HttpExchange> exchange) {
      exchange->on_close([&] { closed.set_value(); });
      if (streaming) exchange->start_stream({200, "text/plain", {}, ""});
      held = std::move(exchange);
      reached.set_value();
    });
    const auto client = client_of(server->port());
    Recorder recorder;
    const HttpCall call = client->stream(get("/"), recorder.handlers());
    reached.get_future().wait();
    call.cancel();
    ASSERT_TRUE(recorder.wait_for_end());
    ASSERT_FALSE(recorder.ended.front().has_value());
    EXPECT_EQ(recorder.ended.front().error().code, ErrorCode::kCancelled);
    EXPECT_EQ(closed.get_future().wait_for(10s), std::future_status::ready);
    call.cancel();  // of what is over: nothing
  }
}

TEST(HttpClient, NoCallbackAfterTheDestructor) {
  std::atomic<int> n_reached{0};
  std::mutex mutex;
  std::vector<std::shared_ptr<HttpExchange>> held;
  const auto server = start([&](std::shared_ptr<HttpExchange> exchange) {
    const std::lock_guard lock(mutex);
    held.push_back(std::move(exchange));
    ++n_reached;
  });
  const auto thread = std::make_shared<HttpClientThread>();
  HttpCall call;
  const auto alive = std::make_shared<std::atomic<bool>>(true);
  const auto token = std::make_shared<int>();
  {
    auto client = HttpClient::create(options_of(server->port()), thread).value();
    for (int i = 0; i < 20; ++i) {
      call = client->request(get("/"), 0ms, [alive, token](const auto&) { EXPECT_TRUE(*alive); });
    }
    while (n_reached < 10) std::this_thread::sleep_for(1ms);
  }
  *alive = false;
  call.cancel();
  EXPECT_EQ(token.use_count(), 1) << "callbacks are gone with the client";
  // The thread serves the next client.
  auto client = HttpClient::create(options_of(server->port()), thread).value();
  EXPECT_FALSE(ask(*client, get("/"), 10ms).has_value());
}

TEST(HttpClient, MayBeDestroyedInACallback) {
  const auto server = start([](std::shared_ptr<HttpExchange> exchange) {
    exchange->start_stream({200, "text/plain", {}, ""});
    exchange->write("x");
  });
  for (const bool own_thread : {true, false}) {
    const auto thread = own_thread ? nullptr : std::make_shared<HttpClientThread>();
    std::promise<void> destroyed;
    auto client = HttpClient::create(options_of(server->port()), thread).value();
    client->stream(get("/"),
                   {.on_head = {},
                    .on_chunk =
                        [&](std::string_view) {
                          client = nullptr;
                          destroyed.set_value();
                        },
                    .on_end = [](const Status&) { ADD_FAILURE() << "the client is gone"; }});
    destroyed.get_future().wait();
  }
}

TEST(HttpClient, RefusesWhatIsNoOrigin) {
  for (const char* wrong : {"", "127.0.0.1:80", "https://a:1", "http://a", "http://:80",
                            "http://a:", "http://a:x", "http://a:80/", "http://a b:80"}) {
    HttpClientOptions options;
    options.origin = wrong;
    const auto client = HttpClient::create(options);
    ASSERT_FALSE(client.has_value()) << wrong;
    EXPECT_EQ(client.error().code, ErrorCode::kInvalidArgument);
  }
  HttpClientOptions options;
  options.origin = "http://[::1]:80";
  EXPECT_TRUE(HttpClient::create(options).has_value());
}

}  // namespace
}  // namespace baton::net
