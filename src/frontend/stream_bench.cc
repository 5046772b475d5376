// What a generated token costs on its way to a client, from the update that the engine's thread
// hands over to the bytes that are handed to the connection, and with HTTP and a socket behind it.
#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "frontend/frontend.h"
#include "frontend/model_codec.h"
#include "net/http_server.h"
#include "text/bench_samples.h"

namespace baton::frontend {
namespace {

/// Runs what is posted at once, on the caller's thread, and counts what is written.
class DirectExchange final : public net::HttpExchange {
 public:
  explicit DirectExchange(net::HttpRequest request) : request_(std::move(request)) {}
  [[nodiscard]] const net::HttpRequest& request() const override { return request_; }
  void respond(net::HttpResponse response) override { status = response.status; }
  void start_stream(net::HttpResponse head) override { status = head.status; }
  void write(std::string chunk) override { n_bytes += chunk.size(); }
  void end() override {}
  void post(std::function<void()> task) override { task(); }
  void on_close(std::function<void()> /*callback*/) override {}

  int status = 0;
  size_t n_bytes = 0;

 private:
  net::HttpRequest request_;
};

/// Keeps the sinks of its requests for whoever plays the engine.
class SinkBackend final : public Backend {
 public:
  struct Running {
    RequestId id;
    UpdateSink sink;
  };
  Status submit(TokenRequest request, UpdateSink sink) override {
    RequestUpdate update{.id = request.id, .prompt = PromptInfo{}, .events = {}};
    update.prompt->n_prompt_tokens = static_cast<int>(request.prompt.size());
    sink(std::move(update));
    const std::lock_guard lock(mutex_);
    running_.push_back({request.id, std::move(sink)});
    changed_.notify_all();
    return {};
  }
  void cancel(RequestId /*id*/, std::optional<int> /*choice*/) override {}
  [[nodiscard]] BackendHealth health() const override { return {}; }

  /// Waits until there are n.
  std::vector<Running> take(size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_.size() >= n; });
    return std::exchange(running_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Running> running_;
};

/// A frontend over such a backend, with SmolLM2's vocabulary where it is there.
class Served {
 public:
  Served() {
    text::BenchTokenizer loaded = text::bench_tokenizer("smollm2");
    ids = loaded.tokenizer->encode(text::english_sample(BATON_SOURCE_DIR), {.add_special = false});
    FrontendOptions options;
    options.card = {.names = {"smollm2-135m"},
                    .max_model_len = 8192,
                    .n_vocab = loaded.tokenizer->n_tokens(),
                    .eos_ids = loaded.tokenizer->end_ids(),
                    .fingerprint = "baton-0.1"};
    options.codec = make_model_codec(std::move(loaded.tokenizer),
                                     [](const api::ChatPrompt&) { return std::string("Hi"); });
    auto made = Frontend::create(std::move(options), {backend, registry_, clock_});
    BATON_CHECK(made.has_value(), "the frontend is complete");
    frontend = std::move(*made);
  }

  SinkBackend backend;
  std::vector<TokenId> ids;  ///< of an English text: what is "generated", again and again
  std::unique_ptr<Frontend> frontend;

 private:
  SystemClock clock_;
  MetricsRegistry registry_;
};

/// The next token of a text that never ends, with `n_top` alternatives if that isn't negative.
RequestUpdate next_token(RequestId id, const std::vector<TokenId>& ids, size_t& at, int n_top) {
  RequestUpdate update{.id = id, .prompt = {}, .events = {}};
  TokenEvent& event = update.events.emplace_back();
  event.tokens = {ids[at]};
  at = (at + 1) % ids.size();
  if (n_top < 0) return update;
  LogprobEntry& entry = event.logprobs.emplace_back();
  entry.logprob = -1.25F;
  for (int i = 0; i < n_top; ++i)
    entry.top.push_back({ids[static_cast<size_t>(i)], -1.25F - static_cast<float>(i)});
  return update;
}

std::string stream_request(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"Hi"}],"stream":true)" + fields + "}";
}

/// Engine's update → text → event → bytes handed to the connection, all on one thread.
void token_to_bytes(benchmark::State& state, const std::string& fields, int n_top) {
  Served served;
  const auto exchange = std::make_shared<DirectExchange>(
      net::HttpRequest{.method = "POST",
                       .path = "/v1/chat/completions",
                       .query = {},
                       .headers = {{"content-type", "application/json"}},
                       .body = stream_request(fields)});
  served.frontend->handle(exchange);
  if (exchange->status != 200) return state.SkipWithError("refused");
  const SinkBackend::Running running = served.backend.take(1).front();
  size_t at = 0;
  for (auto _ : state) running.sink(next_token(running.id, served.ids, at, n_top));
  state.counters["bytes"] = benchmark::Counter(static_cast<double>(exchange->n_bytes),
                                               benchmark::Counter::kAvgIterations);
}

/// The client's end of one stream.
class Client {
 public:
  explicit Client(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BATON_CHECK(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
                "connects");
    const std::string body = stream_request("");
    const std::string request = fmt::format(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\n\r\n{}",
        body.size(), body);
    BATON_CHECK(
        ::send(socket_, request.data(), request.size(), 0) == static_cast<ssize_t>(request.size()),
        "sends");
    read_until("\r\n\r\n");
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Reads until what came ends so.
  void read_until(std::string_view end) {
    std::string_view came;
    do {
      const ssize_t n = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
      BATON_CHECK(n > 0, "the stream goes on");
      came = std::string_view(buffer_.data(), static_cast<size_t>(n));
    } while (!came.ends_with(end));
  }

 private:
  int socket_;
  std::vector<char> buffer_ = std::vector<char>(1 << 16);
};

double cpu_seconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Steps of an engine with so many streams, over HTTP. Time: from the first update of a step to the
/// last client's having its token. `io_us`: processor time of the server's I/O threads for a token;
/// `engine_us`: of the thread that hands it over.
void token_to_socket(benchmark::State& state) {
  Served served;
  net::HttpServerOptions options;
  options.port = 0;
  auto http = net::HttpServer::create(options);
  BATON_CHECK(http.has_value(), "a free port");
  (*http)->start([&](std::shared_ptr<net::HttpExchange> exchange) {
    served.frontend->handle(std::move(exchange));
  });
  const auto n_streams = static_cast<size_t>(state.range(0));
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<SinkBackend::Running> running;
  for (size_t i = 0; i < n_streams; ++i) {
    clients.push_back(std::make_unique<Client>((*http)->port()));
    running.push_back(std::move(served.backend.take(1).front()));
  }
  size_t at = 0;
  double engine_s = 0;
  const double others_s =
      cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
  for (auto _ : state) {
    const double begin_s = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (const auto& one : running) one.sink(next_token(one.id, served.ids, at, -1));
    engine_s += cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - begin_s;
    for (const auto& client : clients) client->read_until("\n\n\r\n");
  }
  const double io_s =
      cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - others_s;
  const double n_tokens = static_cast<double>(state.iterations()) * static_cast<double>(n_streams);
  state.counters["io_us"] = 1e6 * io_s / n_tokens;
  state.counters["engine_us"] = 1e6 * engine_s / n_tokens;
  clients.clear();
  (*http)->stop();
}

BENCHMARK_CAPTURE(token_to_bytes, plain, "", -1);
BENCHMARK_CAPTURE(token_to_bytes, stop_strings, R"(,"stop":["\n\n\n","</answer>"])", -1);
BENCHMARK_CAPTURE(token_to_bytes, top_logprobs_5, R"(,"logprobs":true,"top_logprobs":5)", 5);
BENCHMARK(token_to_socket)->Arg(1)->Arg(16)->UseRealTime();

}  // namespace
}  // namespace baton::frontend
