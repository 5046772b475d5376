// The router's thread and the calls of others to it.
#include "router/backend.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "base/log.h"

namespace baton::router {
namespace {

using namespace std::chrono_literals;
constexpr int64_t kSecond = 1'000'000'000;

/// An engine of both roles that answers at once, from the router's thread: `max_tokens` tokens in
/// one update. Commands from the test come through the router's thread too.
class EchoLink final : public EngineLink {
 public:
  EchoLink(const LinkSite& site, std::atomic<bool>& hold) : site_(site), hold_(hold) {}

  void connect(const std::string& url) override {
    if (url.empty()) {
      if (std::exchange(up_, false)) site_.listener.on_down(site_.engine, "told to");
      return;
    }
    if (std::exchange(up_, true)) return;
    EngineInfo info;
    info.incarnation = ++incarnation_;
    info.n_vocab = 100;
    info.block_tokens = 16;
    info.max_batch = 64;
    site_.post([this, info] { site_.listener.on_up(site_.engine, info); });
  }
  void prep_recv(const PrepareReceive&, Callback<PreparedReceive>) override {}
  void remote_send(const RemoteSend&, Callback<SentKv>) override {}
  void start_generate(const TokenRequest& request, Callback<void> done) override {
    site_.post([done = std::move(done)] { done({}); });
    if (hold_) return;
    RequestUpdate update;
    update.id = request.id;
    update.prompt = PromptInfo{};
    update.events.resize(1);
    update.events[0].tokens.assign(static_cast<size_t>(request.max_tokens), 1);
    update.events[0].finish = FinishReason::kLength;
    site_.post([this, update] { site_.listener.on_update(site_.engine, update); });
  }
  void cancel(RequestId, std::optional<int>) override {}
  void release(LeaseId) override {}

 private:
  LinkSite site_;
  std::atomic<bool>& hold_;
  bool up_ = false;
  uint64_t incarnation_ = 0;
};

struct Fixture {
  explicit Fixture(RouterBackendOptions options = {}) {
    spdlog::set_level(spdlog::level::off);
    if (options.engines.empty()) options.engines = {{"0", "here"}};
    backend = RouterBackend::create(options, {clock, registry,
                                              [this](const LinkSite& site) {
                                                return std::make_unique<EchoLink>(site, hold);
                                              },
                                              nullptr})
                  .value();
  }
  void start() {
    backend->start();
    wait_until([this] { return backend->health().ready; });
  }
  template <typename Condition>
  static void wait_until(Condition condition) {
    while (!condition()) std::this_thread::sleep_for(1ms);
  }
  static TokenRequest request(uint64_t id) {
    TokenRequest out;
    out.id = RequestId{id};
    out.prompt = {1, 2, 3};
    out.max_tokens = 3;
    out.label = "cmpl-" + std::to_string(id);
    return out;
  }

  SystemClock clock;
  MetricsRegistry registry;
  std::atomic<bool> hold{false};
  std::unique_ptr<RouterBackend> backend;
};

TEST(RouterBackend, ServesManyThreadsAtOnce) {
  Fixture f;
  f.start();
  std::atomic<int> n_finished{0};
  std::atomic<int> n_tokens{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 100; ++i) {
        const RequestId id{t * 1000 + i};
        ASSERT_TRUE(f.backend->submit(Fixture::request(id.value), [&](const RequestUpdate& update) {
          for (const TokenEvent& event : update.events) {
            n_tokens += static_cast<int>(event.tokens.size());
            n_finished += event.finish ? 1 : 0;
          }
        }));
        if (i % 10 == 0) f.backend->cancel(RequestId{t * 1000 + i + 500000}, std::nullopt);
        (void)f.backend->health();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(f.backend->drain(60 * kSecond));
  EXPECT_EQ(n_finished, 400);
  EXPECT_EQ(n_tokens, 1200);
}

TEST(RouterBackend, RefusesWhatItCantServe) {
  Fixture f;
  const Status before = f.backend->submit(Fixture::request(1), [](const RequestUpdate&) {});
  ASSERT_FALSE(before);
  EXPECT_EQ(before.error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(f.backend->health().ready);
  EXPECT_TRUE(f.backend->health().alive);
  f.start();
  TokenRequest odd = Fixture::request(2);
  odd.first_choice = 1;
  EXPECT_EQ(f.backend->submit(odd, [](const RequestUpdate&) {}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(f.backend->drain(kSecond));
  const Status after = f.backend->submit(Fixture::request(3), [](const RequestUpdate&) {});
  EXPECT_EQ(after.error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(f.backend->health().ready);
}

TEST(RouterBackend, TheQueuesLimitCountsWhatIsNotYetTakenUp) {
  RouterBackendOptions options;
  options.router.max_queue = 5;
  Fixture f(options);
  f.hold = true;
  f.start();
  // The thread is kept busy, so all that is submitted waits in the box.
  std::promise<void> go_on;
  f.backend->ask([&](const RouterCore&) { go_on.get_future().wait(); });
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(f.backend->submit(Fixture::request(i), [](const RequestUpdate&) {}));
  }
  const Status full = f.backend->submit(Fixture::request(9), [](const RequestUpdate&) {});
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kExhausted);
  go_on.set_value();
  f.backend->stop();
}

TEST(RouterBackend, StopEndsWhatIsLeft) {
  Fixture f;
  f.hold = true;
  f.start();
  std::vector<std::promise<FinishReason>> ends(20);
  for (uint64_t i = 0; i < ends.size(); ++i) {
    ASSERT_TRUE(f.backend->submit(Fixture::request(i), [&, i](const RequestUpdate& update) {
      ends[i].set_value(update.events.at(0).finish.value());
    }));
  }
  EXPECT_FALSE(f.backend->drain(1'000'000));
  f.backend->stop();
  for (auto& end : ends) EXPECT_EQ(end.get_future().get(), FinishReason::kError);
  f.backend->cancel(RequestId{1}, std::nullopt);
  EXPECT_TRUE(f.backend->set_engine("0", "there", {}));
}

TEST(RouterBackend, AnEngineThatMoves) {
  Fixture f;
  f.start();
  EXPECT_FALSE(f.backend->set_engine("7", "x", {}));
  EXPECT_TRUE(f.backend->set_engine("0", "", {.cpus = {}, .n_restarts = 0, .state = "dead"}));
  Fixture::wait_until([&] { return !f.backend->health().ready; });
  EXPECT_EQ(f.backend->health().reason, "no engine is ready");
  EXPECT_TRUE(f.backend->set_engine("0", "there", {.cpus = {}, .n_restarts = 1, .state = ""}));
  Fixture::wait_until([&] { return f.backend->health().ready; });
  std::promise<std::string> json;
  f.backend->ask([&](const RouterCore& core) { json.set_value(core.engines().json()); });
  const std::string text = json.get_future().get();
  EXPECT_NE(text.find(R"("url":"there")"), text.npos) << text;
  EXPECT_NE(text.find(R"("restarts":1)"), text.npos) << text;
}

TEST(RouterBackend, AStuckThreadIsNotHealthy) {
  RouterBackendOptions options;
  options.stuck_after_ns = 1'000'000;
  Fixture f(options);
  f.start();
  std::promise<void> go_on;
  f.backend->ask([&](const RouterCore&) { go_on.get_future().wait(); });
  Fixture::wait_until([&] { return !f.backend->health().alive; });
  go_on.set_value();
  Fixture::wait_until([&] { return f.backend->health().alive; });
}

TEST(RouterBackend, TwoEnginesOfOneNameAreRefused) {
  MetricsRegistry registry;
  SystemClock clock;
  RouterBackendOptions options;
  options.engines = {{"a", ""}, {"a", ""}};
  const auto refused = RouterBackend::create(options, {clock, registry, nullptr, nullptr});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "router: two engines are called 'a'");
}

}  // namespace
}  // namespace baton::router
