#include "server/server_test_support.h"

#include <gtest/gtest.h>

#include <future>

#include "frontend/frontend_test_support.h"

namespace baton::server {

TestEngine::TestEngine(const TestEngineOptions& options)
    : model({.context_length = options.context_tokens}) {
  model.on_forward = [this](std::span<const model::SeqSlice>) { gate.pass(); };
  EngineServerOptions server_options;
  engine::EngineOptions& engine = server_options.engine;
  engine.role = options.role;
  engine.kv_bytes = testing::kStandInBlockBytes * static_cast<size_t>(options.n_blocks);
  engine.prefill_min_tokens = 32;
  engine.max_queue = options.max_queue;
  engine.lease_ns = options.lease_ns;
  server_options.frontend.card.names = {"stand-in"};
  server_options.frontend.card.n_vocab = model.n_vocab();
  server_options.frontend.codec = std::make_shared<frontend::ByteCodec>();
  server_options.frontend.api_key = options.key;
  server_options.http.port = 0;
  server_options.http.idle_timeout = options.idle_timeout;
  server_options.heartbeat = options.heartbeat;
  server_options.cpus = {options.pe};
  EngineServer::Deps deps{model, pool, metrics, nullptr};
  if (options.world != nullptr || !options.uid.empty()) {
    server_options.world_json =
        shmem::to_json({.uid = options.world != nullptr ? "fake" : options.uid,
                        .npes = options.npes,
                        .pe_start = options.pe});
  }
  if (options.world != nullptr) {
    deps.join = [&](const shmem::ShmHeapOptions& heap) -> Result<std::unique_ptr<shmem::Heap>> {
      return options.world->join({.first_pe = Pe{heap.world.pe_start},
                                  .n_pes = heap.n_pes,
                                  .bytes_per_pe = heap.bytes_per_pe,
                                  .member = heap.member});
    };
  }
  auto made = EngineServer::create(std::move(server_options), deps);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  server = std::move(*made);
  server->start();
  net::HttpClientOptions client_options;
  client_options.origin = origin();
  client_options.bearer_token = options.key;
  client = net::HttpClient::create(client_options).value();
}

TestEngine::~TestEngine() { gate.set(true); }

std::string TestEngine::origin() const {
  return fmt::format("http://127.0.0.1:{}", server->port());
}

net::HttpResponse TestEngine::post(const std::string& path, std::string body) {
  std::promise<Result<net::HttpResponse>> answer;
  client->request({.method = "POST",
                   .path = path,
                   .query = {},
                   .headers = {{"Content-Type", "application/json"}},
                   .body = std::move(body)},
                  std::chrono::seconds(60),
                  [&](Result<net::HttpResponse> result) { answer.set_value(std::move(result)); });
  auto result = answer.get_future().get();
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result ? std::move(*result) : net::HttpResponse{.status = 0, .headers = {}, .body = {}};
}

bool TestEngine::wait_until_idle() {
  return wait_for([](const engine::EngineStats& stats) {
    return stats.n_running == 0 && stats.n_waiting == 0 && stats.blocks.used == 0 &&
           stats.blocks.leased == 0;
  });
}

TestStream::TestStream(TestEngine& engine) {
  start(engine, api::kAttachPath, api::write_attach({"test router"}));
  EXPECT_TRUE(wait_for([](const TestStream& s) { return !s.first_ || s.ended; }));
}

TestStream::TestStream(TestEngine& engine, const TokenRequest& request) {
  start(engine, api::kStartGeneratePath, api::write_start_generate({"", request}));
}

void TestStream::start(TestEngine& engine, const char* path, std::string request) {
  net::StreamHandlers handlers;
  handlers.on_head = [this](const net::HttpResponse& head) {
    const std::lock_guard lock(mutex_);
    status = head.status;
  };
  handlers.on_chunk = [this](std::string_view chunk) {
    const std::lock_guard lock(mutex_);
    take(chunk);
    changed_.notify_all();
  };
  handlers.on_end = [this](const Status&) {
    const std::lock_guard lock(mutex_);
    ended = true;
    changed_.notify_all();
  };
  call_ = engine.client->stream({.method = "POST",
                                 .path = path,
                                 .query = {},
                                 .headers = {{"Content-Type", "application/json"}},
                                 .body = std::move(request)},
                                std::move(handlers));
}

void TestStream::close() {
  call_.cancel();
  EXPECT_TRUE(wait_for([](const TestStream& s) { return s.ended; }));
}

void TestStream::take(std::string_view chunk) {
  if (status != 200) {
    body += chunk;
    return;
  }
  rest_ += chunk;
  for (size_t end = 0; (end = rest_.find('\n')) != rest_.npos;) {
    take_line(rest_.substr(0, end));
    rest_.erase(0, end + 1);
  }
}

void TestStream::take_line(std::string_view line) {
  if (std::exchange(first_, false)) {
    auto read = api::read_attached(line);
    if (read) attached = std::move(*read);
    if (!read && !api::read_incarnation(line)) wrong.emplace_back(line);
    return;
  }
  auto frame = api::read_frame(line, 64);
  if (!frame) {
    wrong.push_back(frame.error().message);
    return;
  }
  ++n_frames;
  state = frame->state;
  for (RequestUpdate& update : frame->updates) {
    ++n_updates;
    testing::Outcome& outcome = outcomes[update.id];
    outcome.take(std::move(update));
  }
}

testing::Outcome TestStream::wait_for_end(RequestId id, int n_choices) {
  testing::Outcome out;
  EXPECT_TRUE(wait_for([&](TestStream& s) {
    if (s.outcomes[id].n_finished() < n_choices) return false;
    out = s.outcomes[id];
    return true;
  })) << "request "
      << id.value;
  EXPECT_TRUE(wrong.empty()) << wrong.front();
  return out;
}

}  // namespace baton::server
