// For the tests of an engine's server: whole engines over the stand-in model in one process, and a
// router's side of the wire to talk to them.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "api/microserving.h"
#include "net/http_client.h"
#include "server/engine_server.h"
#include "testing/core_fixture.h"
#include "testing/fake_world.h"

namespace baton::server {

/// Lets the model's passes through only while open.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++n_arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  /// Blocks until `n` passes have arrived since the start.
  void wait_for(int n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return n_arrived_ >= n; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int n_arrived_ = 0;
};

struct TestEngineOptions {
  Role role = Role::kBoth;
  testing::FakeWorld* world = nullptr;  ///< null: `uid`'s
  std::string uid{};                    ///< of a world in shared memory; empty: it serves alone
  int npes = 8;
  int pe = 0;
  int n_blocks = 1024;
  int max_queue = 2048;
  int64_t lease_ns = int64_t{600} * 1'000'000'000;
  std::chrono::milliseconds heartbeat{50};
  std::string key{};
  int context_tokens = 4096;
  std::chrono::milliseconds idle_timeout{75'000};  ///< of connections
};

/// A running engine process, but for the process.
class TestEngine {
 public:
  explicit TestEngine(const TestEngineOptions& options = {});
  /// Opens the gate.
  ~TestEngine();

  [[nodiscard]] std::string origin() const;
  /// POSTs and waits for the answer, which must come.
  net::HttpResponse post(const std::string& path, std::string body);
  /// Waits until it has nothing to do and nobody holds any block.
  [[nodiscard]] bool wait_until_idle();
  template <typename Condition>
  [[nodiscard]] bool wait_for(Condition condition);

  Gate gate;
  testing::StandInModel model;  ///< of the options' context
  ThreadPool pool{{.n_threads = 1, .cpus = {}}};
  MetricsRegistry metrics;
  std::unique_ptr<EngineServer> server;
  std::unique_ptr<net::HttpClient> client;
};

/// The stream of an attach, or of one start_generate, as a router sees it. Thread-safe.
class TestStream {
 public:
  /// attach.
  explicit TestStream(TestEngine& engine);
  /// start_generate without a session.
  TestStream(TestEngine& engine, const TokenRequest& request);
  ~TestStream() { close(); }

  /// The router goes away.
  void close();
  /// Blocks (a long time at most) until the condition holds; false if it never did.
  template <typename Condition>
  [[nodiscard]] bool wait_for(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return condition(*this); });
  }
  /// All choices of a request have ended; what came of it.
  testing::Outcome wait_for_end(RequestId id, int n_choices = 1);

  // Under the lock of wait_for():
  api::Attached attached;
  int status = 0;
  std::string body;  ///< of an error
  std::map<RequestId, testing::Outcome> outcomes;
  EngineState state;
  int n_frames = 0;
  int n_updates = 0;
  bool ended = false;
  std::vector<std::string> wrong;  ///< lines that could not be read

 private:
  void start(TestEngine& engine, const char* path, std::string request);
  void take(std::string_view chunk);
  void take_line(std::string_view line);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool first_ = true;
  std::string rest_;  ///< of a line
  net::HttpCall call_;
};

template <typename Condition>
bool TestEngine::wait_for(Condition condition) {
  for (int i = 0; i < 60'000; ++i) {
    if (condition(server->engine().stats())) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace baton::server
