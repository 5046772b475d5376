// The link to an engine whose answers are not what they should be.
#include "router/http_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "net/http_server.h"

namespace baton::router {
namespace {

using namespace std::chrono_literals;

net::HttpResponse answer(int status, std::string body) {
  net::HttpResponse out;
  out.status = status;
  out.body = std::move(body);
  return out;
}

/// An engine over HTTP that lets itself be attached to and gives `answer` to every start_generate.
class StandInEngine {
 public:
  explicit StandInEngine(net::HttpResponse answer) : answer_(std::move(answer)) {
    net::HttpServerOptions options;
    options.port = 0;
    server_ = net::HttpServer::create(options).value();
    server_->start([this](std::shared_ptr<net::HttpExchange> exchange) { take(exchange); });
  }
  [[nodiscard]] std::string url() const {
    return "http://127.0.0.1:" + std::to_string(server_->port());
  }
  [[nodiscard]] int n_releases() const { return n_releases_; }

 private:
  void take(const std::shared_ptr<net::HttpExchange>& exchange) {
    const std::string& path = exchange->request().path;
    if (path == api::kAttachPath) {
      EngineInfo info;
      info.incarnation = 7;
      info.n_vocab = 100;
      info.context_tokens = 64;
      info.n_blocks = 4;
      info.block_tokens = 16;
      info.max_batch = 4;
      stream_ = exchange;
      exchange->start_stream({});
      exchange->write(api::write_attached({"session", info}));
      exchange->write(api::write_frame({}));
    } else if (path == api::kStartGeneratePath) {
      exchange->respond(answer_);
    } else {
      if (path == api::kReleasePath) ++n_releases_;
      exchange->respond(answer(200, api::write_done(7)));
    }
  }

  net::HttpResponse answer_;
  std::atomic<int> n_releases_{0};
  std::shared_ptr<net::HttpExchange> stream_;
  std::unique_ptr<net::HttpServer> server_;
};

/// The router's thread, driven by the test.
struct LinkFixture : EngineListener {
  explicit LinkFixture(const std::string& url)
      : link({}, {*this, [this](std::function<void()> task) { post(std::move(task)); }, clock,
                  std::make_shared<net::HttpClientThread>()}) {
    link.connect(url);
    run_until([this] { return up; });
  }
  void on_up(int, const EngineInfo&) override { up = true; }
  void on_down(int, const std::string&) override { up = false; }
  void on_state(int, const EngineState&) override {}
  void on_update(int, RequestUpdate) override {}

  void post(std::function<void()> task) {
    const std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
  }
  void run_until(const std::function<bool()>& condition) {
    for (int i = 0; i < 10'000 && !condition(); ++i) {
      std::vector<std::function<void()>> now;
      {
        const std::lock_guard lock(mutex);
        now.swap(tasks);
      }
      for (const auto& task : now) task();
      link.tick();
      if (now.empty()) std::this_thread::sleep_for(1ms);
    }
    ASSERT_TRUE(condition());
  }
  /// How a start_generate ends, and how many releases of it follow at least.
  std::optional<Status> start(const StandInEngine& engine, int n_releases) {
    std::optional<Status> out;
    TokenRequest request;
    request.id = RequestId{1};
    request.prompt = {1, 2, 3};
    link.start_generate(request, [&](Status status) { out = std::move(status); });
    run_until([&] { return out && engine.n_releases() >= n_releases; });
    return out;
  }

  SystemClock clock;
  std::mutex mutex;
  std::vector<std::function<void()>> tasks;
  bool up = false;
  HttpLink link;
};

TEST(HttpLink, WhatAnUnreadableAnswerMayHaveStartedIsEnded) {
  for (const char* body : {"{}", "nonsense", "", R"({"incarnation":"8"})"}) {
    StandInEngine engine(answer(200, body));
    LinkFixture f(engine.url());
    const auto status = f.start(engine, 1);
    ASSERT_TRUE(status && !*status) << body;
  }
}

TEST(HttpLink, WhatIsRefusedNeedsNoEnd) {
  for (const int http_status : {400, 404, 429}) {
    StandInEngine engine(answer(http_status, R"({"error":{"message":"no"}})"));
    LinkFixture f(engine.url());
    const auto status = f.start(engine, 0);
    ASSERT_TRUE(status && !*status);
    f.link.release(LeaseId{1});  // on the way behind what else there may be
    f.run_until([&] { return engine.n_releases() > 0; });
    EXPECT_EQ(engine.n_releases(), 1);
  }
}

}  // namespace
}  // namespace baton::router
