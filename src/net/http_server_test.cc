#include "net/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

namespace baton::net {
namespace {

using namespace std::chrono_literals;

/// A plain socket to the server.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const timeval timeout{5, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  }
  ~Client() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      text.remove_prefix(static_cast<size_t>(n));
    }
  }
  /// Reads until `marker` has come or the connection ends.
  std::string read_until(std::string_view marker) {
    std::string got;
    char buffer[4096];
    while (got.find(marker) == std::string::npos) {
      const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
      if (n <= 0) break;
      got.append(buffer, static_cast<size_t>(n));
    }
    return got;
  }
  std::string read_all() { return read_until("\xff never sent \xff"); }

 private:
  int fd_;
};

std::unique_ptr<HttpServer> start(HttpServerOptions options, HttpHandler handler) {
  options.port = 0;
  auto server = HttpServer::create(options);
  EXPECT_TRUE(server.has_value());
  (*server)->start(std::move(handler));
  return std::move(*server);
}

void echo(std::shared_ptr<HttpExchange> exchange) {
  const auto& r = exchange->request();
  exchange->respond(
      {200, "text/plain", {{"X-Seen", r.path + "|" + r.query}}, r.method + ":" + r.body + ";"});
}

TEST(HttpServer, KeepsTheConnectionAndPipelines) {
  const auto server = start({}, echo);
  Client client(server->port());
  client.send(
      "GET /a%20b?x=1 HTTP/1.1\r\nHost: t\r\n\r\nPOST /c HTTP/1.1\r\nHost: t\r\nContent-Length: "
      "2\r\n\r\nhi");
  const std::string got = client.read_until("POST:hi;");
  EXPECT_NE(got.find("X-Seen: /a b|x=1"), std::string::npos) << got;
  EXPECT_NE(got.find("GET:;"), std::string::npos) << got;
  EXPECT_NE(got.find("POST:hi;"), std::string::npos) << got;
}

TEST(HttpServer, ReadsChunkedBodiesAndAnswersExpect) {
  const auto server = start({}, echo);
  Client client(server->port());
  client.send(
      "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_NE(client.read_until("100 Continue").find("100 Continue"), std::string::npos);
  client.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_NE(client.read_until("POST:abcde;").find("POST:abcde;"), std::string::npos);
}

TEST(HttpServer, RefusesTooLargeBodiesAndHeadersAndNonsense) {
  HttpServerOptions options;
  options.max_body_bytes = 10;
  options.max_header_bytes = 1000;
  const auto server = start(options, echo);
  const auto ask = [&](std::string_view text) {
    Client client(server->port());
    client.send(text);
    return client.read_all();
  };
  EXPECT_NE(ask("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 11\r\n\r\n").find("413"),
            std::string::npos);
  EXPECT_NE(ask("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: "
                "chunked\r\n\r\nb\r\nabcdefghijk\r\n0\r\n\r\n")
                .find("413"),
            std::string::npos);
  EXPECT_NE(ask("GET / HTTP/1.1\r\nX: " + std::string(2000, 'a') + "\r\n\r\n").find("431"),
            std::string::npos);
  EXPECT_NE(ask("\x16\x03\x01 nonsense\r\n\r\n").find("400"), std::string::npos);
  EXPECT_NE(ask("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").find("GET:;"),
            std::string::npos);
}

TEST(HttpServer, StreamsInOrderFromAnotherThread) {
  std::promise<std::shared_ptr<HttpExchange>> reached;
  const auto server = start(
      {}, [&](std::shared_ptr<HttpExchange> exchange) { reached.set_value(std::move(exchange)); });
  Client client(server->port());
  client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
  auto exchange = reached.get_future().get();
  exchange->start_stream({200, "text/event-stream", {}, ""});
  for (int i = 0; i < 100; ++i) exchange->write(fmt::format("data: {}\n\n", i));
  exchange->end();
  const std::string got = client.read_until("0\r\n\r\n");
  size_t at = 0;
  for (int i = 0; i < 100; ++i) {
    at = got.find(fmt::format("data: {}\n\n", i), at);
    ASSERT_NE(at, std::string::npos) << i;
  }
}

TEST(HttpServer, WritesCommentsWhileAStreamIsSilent) {
  HttpServerOptions options;
  options.sse_comment_every = 20ms;
  std::shared_ptr<HttpExchange> held;
  const auto server = start(options, [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->start_stream({200, "text/event-stream", {}, ""});
    held = std::move(exchange);
  });
  Client client(server->port());
  client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_NE(client.read_until(": keep-alive").find(": keep-alive"), std::string::npos);
  held->end();
}

TEST(HttpServer, TellsWhenTheClientGoesAway) {
  for (const bool streaming : {false, true}) {
    std::promise<void> closed;
    std::promise<void> reached;
    std::shared_ptr<HttpExchange> held;
    const auto server = start({}, [&](std::shared_ptr<HttpExchange> exchange) {
      exchange->on_close([&] { closed.set_value(); });
      if (streaming) exchange->start_stream({200, "text/event-stream", {}, ""});
      held = std::move(exchange);
      reached.set_value();
    });
    Client client(server->port());
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    reached.get_future().wait();
    client.close();
    EXPECT_EQ(closed.get_future().wait_for(5s), std::future_status::ready);
    EXPECT_TRUE(server->wait_idle(5s));
    held->respond({200, "text/plain", {}, "nobody listens"});
  }
}

TEST(HttpServer, TellsWhenTheClientGoesAwayThoughItSentMore) {
  std::promise<void> closed;
  std::promise<void> reached;
  std::shared_ptr<HttpExchange> held;
  const auto server = start({}, [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->on_close([&] { closed.set_value(); });
    held = std::move(exchange);
    reached.set_value();
  });
  Client client(server->port());
  client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
  reached.get_future().wait();
  client.send("GET /next HTTP/1.1\r\nHost: t\r\n\r\n");
  std::this_thread::sleep_for(20ms);
  client.close();
  EXPECT_EQ(closed.get_future().wait_for(5s), std::future_status::ready);
}

TEST(HttpServer, AClientThatNeverReadsIsCutOff) {
  std::promise<void> closed;
  std::promise<std::shared_ptr<HttpExchange>> reached;
  const auto server = start({}, [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->on_close([&] { closed.set_value(); });
    exchange->start_stream({200, "text/event-stream", {}, ""});
    reached.set_value(std::move(exchange));
  });
  Client client(server->port());
  client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
  auto exchange = reached.get_future().get();
  for (int i = 0; i < 64; ++i) exchange->write(std::string(1 << 20, 'x'));
  EXPECT_EQ(closed.get_future().wait_for(5s), std::future_status::ready);
}

TEST(HttpServer, HeadHasNoBodyAndTheAbsoluteFormIsAPath) {
  const auto server = start({}, echo);
  Client client(server->port());
  client.send("HEAD /h HTTP/1.1\r\nHost: t\r\n\r\nGET http://t/abs?q HTTP/1.1\r\nHost: t\r\n\r\n");
  const std::string got = client.read_until("GET:;");
  EXPECT_NE(got.find("X-Seen: /h|\r\n"), std::string::npos);
  EXPECT_NE(got.find("X-Seen: /abs|q"), std::string::npos);
  EXPECT_EQ(got.find("GET:;"), got.rfind("GET:;")) << got;
}

TEST(HttpServer, ARequestInPiecesNeverBlocksItsConnection) {
  // A piece may leave an event behind whose data has been read by the time the answer is waited
  // for.
  const auto server = start({}, [](std::shared_ptr<HttpExchange> exchange) {
    std::thread([exchange = std::move(exchange)] {
      std::this_thread::sleep_for(200us);
      echo(exchange);
    }).detach();
  });
  Client client(server->port());
  for (int i = 0; i < 2000; ++i) {
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\n");
    client.send("ab");
    client.send("cd");
    ASSERT_NE(client.read_until("POST:abcd;").find("POST:abcd;"), std::string::npos) << i;
  }
}

TEST(HttpServer, ADroppedExchangeIsA500) {
  const auto server = start({}, [](const std::shared_ptr<HttpExchange>&) {});
  Client client(server->port());
  client.send("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
  EXPECT_NE(client.read_all().find("HTTP/1.1 500"), std::string::npos);
}

TEST(HttpServer, AnAnswerOfAnotherThreadCountsThoughTheHandlerLetsGoFirst) {
  const auto server = start({}, [](std::shared_ptr<HttpExchange> exchange) {
    std::thread([&] { echo(exchange); }).join();
  });
  Client client(server->port());
  client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_NE(client.read_until("\r\n\r\n").find("HTTP/1.1 200"), std::string::npos);
}

TEST(HttpServer, AThrowingHandlerCostsOneRequest) {
  const auto server = start({}, [](const std::shared_ptr<HttpExchange>& exchange) {
    if (exchange->request().path == "/throw") throw std::runtime_error("thrown by the test");
    echo(exchange);
  });
  Client client(server->port());
  client.send("GET /throw HTTP/1.1\r\nHost: t\r\n\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n");
  const std::string got = client.read_until("GET:;");
  EXPECT_NE(got.find("HTTP/1.1 500"), std::string::npos);
  EXPECT_NE(got.find("GET:;"), std::string::npos);
}

TEST(HttpServer, CorsOnlyWhenAllowed) {
  HttpServerOptions options;
  options.allow_origin = "https://example.org";
  const auto server = start(options, echo);
  Client client(server->port());
  client.send("OPTIONS /v1/models HTTP/1.1\r\nHost: t\r\n\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n");
  const std::string got = client.read_until("GET:;");
  EXPECT_NE(got.find("HTTP/1.1 204"), std::string::npos);
  EXPECT_NE(got.find("Access-Control-Allow-Origin: https://example.org"), std::string::npos);
}

TEST(HttpServer, NamesThePortInUse) {
  const auto server = start({}, echo);
  HttpServerOptions options;
  options.port = server->port();
  const auto second = HttpServer::create(options);
  ASSERT_FALSE(second.has_value());
  EXPECT_NE(second.error().message.find(std::to_string(options.port)), std::string::npos);
}

TEST(HttpServer, DrainsRunningExchangesAndRefusesNewConnections) {
  std::promise<std::shared_ptr<HttpExchange>> reached;
  const auto server =
      start({}, [&](std::shared_ptr<HttpExchange> e) { reached.set_value(std::move(e)); });
  Client idle(server->port());
  Client client(server->port());
  client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
  auto exchange = reached.get_future().get();
  server->stop_accepting();
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_FALSE(server->wait_idle(10ms));
  exchange->respond({200, "text/plain", {}, "late"});
  const std::string got = client.read_all();
  EXPECT_NE(got.find("Connection: close"), std::string::npos);
  EXPECT_NE(got.find("late"), std::string::npos);
  EXPECT_TRUE(server->wait_idle(5s));
}

}  // namespace
}  // namespace baton::net
