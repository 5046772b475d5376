#include "bench/load.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

#include "bench/prompts.h"
#include "bench/server_info.h"
#include "net/http_server.h"

namespace baton::bench {
namespace {

using namespace std::chrono_literals;
using Exchange = std::shared_ptr<net::HttpExchange>;

std::string token(const std::string& text) {
  return "data: {\"choices\":[{\"index\":0,\"text\":\"" + text + "\"}],\"usage\":null}\n\n";
}
const std::string kUsage =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":6}}\n\n";
const std::string kDone = "data: [DONE]\n\n";

void start_stream(const Exchange& exchange) {
  exchange->start_stream(
      {.status = 200, .content_type = "text/event-stream", .headers = {}, .body = {}});
}

/// A server that answers every request of `script` in turn (the last one again and again).
class Server {
 public:
  using Answer = std::function<void(const Exchange&)>;

  explicit Server(std::vector<Answer> script) : script_(std::move(script)) {
    net::HttpServerOptions options;
    options.port = 0;
    server_ = std::move(*net::HttpServer::create(options));
    server_->start([this](const Exchange& exchange) {
      const size_t i = n_requests++;
      {
        const std::lock_guard lock(mutex_);
        bodies.push_back(exchange->request().body);
      }
      script_[std::min(i, script_.size() - 1)](exchange);
    });
    net::HttpClientOptions client_options;
    client_options.origin = fmt::format("http://127.0.0.1:{}", server_->port());
    client = std::move(*net::HttpClient::create(client_options));
  }

  std::atomic<size_t> n_requests{0};
  std::deque<std::string> bodies;  ///< in the order of requests, if they come one by one
  std::unique_ptr<net::HttpClient> client;

 private:
  std::mutex mutex_;  ///< guards bodies
  std::vector<Answer> script_;
  std::unique_ptr<net::HttpServer> server_;
};

/// An answer that is written at once, and ends.
Server::Answer stream(std::vector<std::string> pieces) {
  return [pieces = std::move(pieces)](const Exchange& exchange) {
    start_stream(exchange);
    for (const std::string& piece : pieces) exchange->write(piece);
    exchange->end();
  };
}

Server::Answer complete() { return stream({token("a"), token(""), token("b"), kUsage, kDone}); }

std::vector<PlannedRequest> requests(int n) {
  std::vector<PlannedRequest> out(static_cast<size_t>(n));
  for (auto& request : out) request = {0, {{1, 4}}, 3};
  return out;
}

LoadResult run(Server& server, int n, LoadOptions options = {}) {
  if (options.max_running == 0) options.max_running = 1;  // one by one: in the script's order
  const SystemClock clock;
  LoadRun load(*server.client, options, clock);
  return load.run(requests(n),
                  {.body = [](size_t i) { return std::to_string(i); }, .on_progress = {}});
}

TEST(Load, ChunksAndUsage) {
  Server server({complete()});
  const LoadResult result = run(server, 3);
  ASSERT_EQ(result.records.size(), 3U);
  for (const RequestRecord& record : result.records) {
    EXPECT_TRUE(record.ok()) << record.error;
    EXPECT_EQ(record.chunk_ns.size(), 3U);
    EXPECT_EQ(record.n_text_chunks, 2);
    EXPECT_EQ(record.prompt_tokens, 40);
    EXPECT_EQ(record.output_tokens, 6);
    EXPECT_TRUE(record.has_usage);
    EXPECT_GT(record.ttft_s(), 0);
    EXPECT_GE(record.e2e_s(), record.ttft_s());
    EXPECT_DOUBLE_EQ(record.tpot_s(), (record.e2e_s() - record.ttft_s()) / 5);
    EXPECT_LE(result.start_ns, record.start_ns);
    EXPECT_LE(record.end_ns, result.end_ns);
  }
  EXPECT_EQ(server.bodies, (std::deque<std::string>{"0", "1", "2"}));
}

TEST(Load, WithoutUsageTextsAreCounted) {
  Server server({stream({token("a"), token(""), token("b"), kDone})});
  const LoadResult result = run(server, 1);
  EXPECT_EQ(result.records[0].output_tokens, 2);
  EXPECT_EQ(result.records[0].prompt_tokens, 4);
  EXPECT_FALSE(result.records[0].has_usage);
}

TEST(Load, EveryKindOfFailure) {
  const auto respond = [](int status, const char* body) {
    return [=](const Exchange& exchange) {
      exchange->respond(
          {.status = status, .content_type = "application/json", .headers = {}, .body = body});
    };
  };
  Server server({
      respond(429, "{\"error\":\n{\"message\":\"full\"}}"),
      respond(500, ""),
      stream({token("a"), "data: {\"error\":{\"message\":\"it broke\"}}\n\n", kDone}),
      stream({token("a"), "data: {nonsense\n\n", kDone}),
      stream({token("a")}),
      stream({": only a comment\n\n", kDone}),
      stream({"data: {\"choices\":[]}\n\n", kDone}),
      [](const Exchange& exchange) {  // let go of without an answer
        (void)exchange;
      },
      complete(),
  });
  const LoadResult result = run(server, 9);
  const auto kind = [&](size_t i) { return result.records[i].error_kind; };
  EXPECT_EQ(kind(0), "http_429");
  EXPECT_EQ(result.records[0].error, "{\"error\": {\"message\":\"full\"}}");
  EXPECT_EQ(kind(1), "http_500");
  EXPECT_EQ(kind(2), "error_event");
  EXPECT_EQ(result.records[2].error, "it broke");
  EXPECT_EQ(kind(3), "broken_stream");
  EXPECT_NE(result.records[3].error.find("{nonsense"), std::string::npos);
  EXPECT_EQ(kind(4), "broken_stream");
  EXPECT_EQ(kind(5), "empty_stream");
  EXPECT_EQ(kind(6), "empty_stream");
  EXPECT_EQ(kind(7), "http_500");
  EXPECT_EQ(kind(8), "");
}

TEST(Load, NobodyThere) {
  net::HttpClientOptions options;
  options.origin = "http://127.0.0.1:1";
  const auto client = std::move(*net::HttpClient::create(options));
  const SystemClock clock;
  LoadRun load(*client, {}, clock);
  const auto result = load.run(requests(4), {.body = [](size_t) { return ""; }, .on_progress = {}});
  ASSERT_EQ(result.records.size(), 4U);
  for (const auto& record : result.records) EXPECT_EQ(record.error_kind, "no_answer");
  EXPECT_FALSE(ask_server(*client).has_value());
}

TEST(Load, NoMoreAtOnceThanAllowed) {
  std::atomic<int> running{0};
  std::atomic<int> peak{0};
  std::mutex mutex;
  std::vector<std::thread> threads;
  Server server({[&](const Exchange& exchange) {
    const int now = ++running;
    int before = peak.load();
    while (now > before && !peak.compare_exchange_weak(before, now)) {
    }
    const std::lock_guard lock(mutex);
    threads.emplace_back([&, exchange] {
      std::this_thread::sleep_for(5ms);
      start_stream(exchange);
      exchange->write(token("x"));
      --running;
      exchange->write(kDone);
      exchange->end();
    });
  }});
  LoadOptions options;
  options.max_running = 3;
  const LoadResult result = run(server, 30, options);
  for (std::thread& thread : threads) thread.join();
  for (const auto& record : result.records) EXPECT_TRUE(record.ok()) << record.error;
  EXPECT_EQ(peak.load(), 3);
}

TEST(Load, RequestsAreSentWhenTheyAreDue) {
  Server server({complete()});
  auto planned = requests(4);
  for (size_t i = 0; i < planned.size(); ++i) planned[i].due_s = 0.03 * static_cast<double>(i);
  const SystemClock clock;
  LoadRun load(*server.client, {}, clock);
  const auto result = load.run(planned, {.body = [](size_t) { return "b"; }, .on_progress = {}});
  for (size_t i = 0; i < planned.size(); ++i) {
    const double sent_s = static_cast<double>(result.records[i].start_ns - result.start_ns) * 1e-9;
    EXPECT_GE(sent_s, planned[i].due_s);
    // The record's own word for it leaves out what came before and after.
    EXPECT_LE(static_cast<double>(result.records[i].late_ns) * 1e-9,
              sent_s - planned[i].due_s + 1e-8);
  }
}

/// Answers a first token and nothing more.
Server::Answer hang(std::deque<Exchange>& held) {
  return [&held](const Exchange& exchange) {
    start_stream(exchange);
    exchange->write(token("x"));
    held.push_back(exchange);
  };
}

TEST(Load, ASilentServerTimesOut) {
  std::deque<Exchange> held;
  Server server({hang(held)});
  LoadOptions options;
  options.timeout = 150ms;
  const LoadResult result = run(server, 1, options);
  EXPECT_EQ(result.records[0].error_kind, "timeout");
}

TEST(Load, StopKeepsWhatIsThere) {
  std::deque<Exchange> held;
  Server server({complete(), hang(held)});
  const SystemClock clock;
  LoadOptions options;
  options.max_running = 1;
  LoadRun load(*server.client, options, clock);
  std::promise<void> second;
  std::thread stopper([&] {
    second.get_future().wait();
    load.stop();
  });
  bool told = false;
  const auto result =
      load.run(requests(10), {.body = [](size_t) { return "b"; },
                              .on_progress =
                                  [&](const LoadProgress& p) {
                                    if (p.n_done == 1 && p.n_running == 1 && !told) {
                                      told = true;
                                      second.set_value();
                                    }
                                  }});
  stopper.join();
  ASSERT_EQ(result.records.size(), 2U);
  EXPECT_TRUE(result.records[0].ok());
  EXPECT_EQ(result.records[1].error_kind, "cancelled");
}

TEST(Load, StoppedBeforeItBegins) {
  Server server({complete()});
  const SystemClock clock;
  LoadRun load(*server.client, {}, clock);
  load.stop();
  const auto result =
      load.run(requests(3), {.body = [](size_t) { return "b"; }, .on_progress = {}});
  EXPECT_TRUE(result.records.empty());
  EXPECT_EQ(server.n_requests, 0U);
}

TEST(Load, WhatAServerSaysOfItself) {
  const auto models = [](int status, const char* body) {
    return [=](const Exchange& exchange) {
      EXPECT_EQ(exchange->request().path, "/v1/models");
      exchange->respond(
          {.status = status, .content_type = "application/json", .headers = {}, .body = body});
    };
  };
  Server server({models(200, R"({"data":[{"id":"m","max_model_len":7}]})"), models(404, "x"),
                 models(401, "x")});
  EXPECT_EQ(ask_server(*server.client)->model, "m");
  EXPECT_EQ(ask_server(*server.client)->model, "");
  const auto refused = ask_server(*server.client);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("401"), std::string::npos);
}

}  // namespace
}  // namespace baton::bench
