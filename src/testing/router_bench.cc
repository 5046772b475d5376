// What a router costs: requests a second of one core, and the time that it adds to an answer.
//
// Three processes, as in life: a router, the engines behind it (whole servers over the stand-in
// model, in one process), and this one, which is the client. The router has the first CPU to
// itself, the others share the last. SmolLM2's vocabulary where the model cache has it.
#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "frontend/model_codec.h"
#include "router/router_server.h"
#include "server/engine_server.h"
#include "testing/core_fixture.h"
#include "testing/fake_world.h"
#include "text/bench_samples.h"

namespace baton::testing {
namespace {

constexpr int kContextTokens = 32'000;  // the stand-in's positions have 16 bits

std::vector<int> cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  BATON_CHECK(::sched_getaffinity(0, sizeof set, &set) == 0);
  std::vector<int> out;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) out.push_back(i);
  }
  return out;
}

void run_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  BATON_CHECK(::sched_setaffinity(0, sizeof set, &set) == 0);
}

/// A child process with servers in it: `body` makes them and says their ports; they live until this
/// object ends (or its process does).
class Child {
 public:
  using Ports = std::vector<uint16_t>;
  /// `body` gets `serve`, to be called with the ports once the servers run.
  Child(int cpu, const std::function<void(const std::function<void(const Ports&)>& serve)>& body) {
    int to_parent[2];
    int to_child[2];
    BATON_CHECK(::pipe(to_parent) == 0 && ::pipe(to_child) == 0);
    pid_ = ::fork();
    BATON_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(to_child[1]);
      run_on(cpu);
      spdlog::set_level(spdlog::level::warn);
      body([&](Ports ports) {
        ports.resize(kMaxPorts);
        const size_t n_bytes = kMaxPorts * sizeof(uint16_t);
        BATON_CHECK(::write(to_parent[1], ports.data(), n_bytes) == static_cast<ssize_t>(n_bytes));
        char end = 0;
        (void)!::read(to_child[0], &end, 1);
      });
      ::_exit(0);
    }
    ::close(to_parent[1]);
    ::close(to_child[0]);
    end_ = to_child[1];
    ports_.resize(kMaxPorts);
    const size_t n_bytes = kMaxPorts * sizeof(uint16_t);
    BATON_CHECK(::read(to_parent[0], ports_.data(), n_bytes) == static_cast<ssize_t>(n_bytes),
                "the servers run");
    ::close(to_parent[0]);
  }
  ~Child() {
    ::close(end_);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] uint16_t port(size_t i = 0) const { return ports_[i]; }
  /// Processor time of all its threads so far.
  [[nodiscard]] double cpu_seconds() const {
    clockid_t clock{};
    timespec time{};
    BATON_CHECK(::clock_getcpuclockid(pid_, &clock) == 0 && ::clock_gettime(clock, &time) == 0);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

 private:
  static constexpr size_t kMaxPorts = 4;
  pid_t pid_ = -1;
  int end_ = -1;
  Ports ports_;
};

std::shared_ptr<const frontend::TextCodec> codec(int& n_vocab) {
  text::BenchTokenizer loaded = text::bench_tokenizer("smollm2");
  n_vocab = loaded.tokenizer->n_tokens();
  return frontend::make_model_codec(std::move(loaded.tokenizer), {});
}

/// A whole engine server over the stand-in model.
struct StandInEngine {
  StandInEngine(Role role, int pe, FakeWorld& world,
                std::shared_ptr<const frontend::TextCodec> text_codec, int n_vocab)
      : model({.n_vocab = n_vocab, .context_length = kContextTokens}) {
    server::EngineServerOptions options;
    options.engine.role = role;
    options.engine.kv_bytes = kStandInBlockBytes * 40'000;
    options.frontend.card.names = {"stand-in"};
    options.frontend.card.n_vocab = n_vocab;
    options.frontend.codec = std::move(text_codec);
    options.http.port = 0;
    server::EngineServer::Deps deps{model, pool, metrics, nullptr};
    if (role != Role::kBoth) {
      options.world_json = shmem::to_json({.uid = "fake", .npes = 2, .pe_start = pe});
      deps.join =
          [&world](const shmem::ShmHeapOptions& heap) -> Result<std::unique_ptr<shmem::Heap>> {
        return world.join({.first_pe = Pe{heap.world.pe_start},
                           .n_pes = heap.n_pes,
                           .bytes_per_pe = heap.bytes_per_pe,
                           .member = heap.member});
      };
    }
    auto made = server::EngineServer::create(std::move(options), deps);
    BATON_CHECK(made.has_value(), "{}", made.error().message);
    server = std::move(*made);
    server->start();
  }

  StandInModel model;
  ThreadPool pool{{.n_threads = 1, .cpus = {}}};
  MetricsRegistry metrics;
  std::unique_ptr<server::EngineServer> server;
};

/// Engines of the roles ("B", "PD") behind a router.
class Cluster {
 public:
  explicit Cluster(const std::string& roles) {
    const std::vector<int> all = cpus();
    engines_ = std::make_unique<Child>(all.back(), [&](const auto& serve) {
      int n_vocab = 0;
      const auto text_codec = codec(n_vocab);
      FakeWorld world(2);
      std::vector<std::unique_ptr<StandInEngine>> engines;
      Child::Ports ports;
      for (const char role : roles) {
        const Role as = role == 'P' ? Role::kPrefill : role == 'D' ? Role::kDecode : Role::kBoth;
        engines.push_back(std::make_unique<StandInEngine>(as, static_cast<int>(engines.size()),
                                                          world, text_codec, n_vocab));
        ports.push_back(engines.back()->server->port());
      }
      serve(ports);
    });
    router_ = std::make_unique<Child>(all.front(), [&](const auto& serve) {
      int n_vocab = 0;
      router::RouterServerOptions options;
      for (size_t i = 0; i < roles.size(); ++i) {
        options.engines.push_back(
            {std::to_string(i), fmt::format("http://127.0.0.1:{}", engines_->port(i))});
      }
      options.frontend.card.names = {"stand-in"};
      options.frontend.codec = codec(n_vocab);
      options.http.port = 0;
      MetricsRegistry metrics;
      auto made = router::RouterServer::create(std::move(options), metrics);
      BATON_CHECK(made.has_value(), "{}", made.error().message);
      (*made)->start();
      serve({(*made)->port()});
    });
    run_on(all.back());
  }

  [[nodiscard]] const Child& engines() const { return *engines_; }
  [[nodiscard]] const Child& router() const { return *router_; }

 private:
  std::unique_ptr<Child> engines_;
  std::unique_ptr<Child> router_;
};

/// A keep-alive connection of a client that reads whole answers with a Content-Length.
class Connection {
 public:
  explicit Connection(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    BATON_CHECK(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~Connection() { ::close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  [[nodiscard]] int fd() const { return socket_; }
  void send(std::string_view request) {
    answer_.clear();
    while (!request.empty()) {
      const ssize_t n = ::send(socket_, request.data(), request.size(), 0);
      BATON_CHECK(n > 0);
      request.remove_prefix(static_cast<size_t>(n));
    }
  }
  /// Takes what has come (waits for some); whether the answer is complete.
  bool read() {
    char buffer[16 << 10];
    const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
    BATON_CHECK(n > 0, "the connection stays");
    answer_.append(buffer, static_cast<size_t>(n));
    const size_t end = answer_.find("\r\n\r\n");
    if (end == answer_.npos) return false;
    BATON_CHECK(answer_.starts_with("HTTP/1.1 200 "), "{}", answer_);
    constexpr std::string_view kLength = "Content-Length: ";
    const size_t length = answer_.find(kLength);
    return answer_.size() == end + 4 + std::stoul(answer_.substr(length + kLength.size(), 12));
  }
  /// Nanoseconds from sending to the whole answer.
  int64_t ask(std::string_view request) {
    const auto begin = std::chrono::steady_clock::now();
    send(request);
    while (!read()) continue;
    return (std::chrono::steady_clock::now() - begin) / std::chrono::nanoseconds(1);
  }

 private:
  int socket_;
  std::string answer_;
};

/// A completion of `n_tokens` tokens whose prompt is so much English, from another place of the
/// text for each `i`.
std::string request(size_t n_prompt_bytes, int n_tokens, size_t i) {
  static const std::string english = text::english_sample(BATON_SOURCE_DIR);
  std::string prompt;
  for (size_t at = 997 * i % english.size(); prompt.size() < n_prompt_bytes; at = 0) {
    prompt += english.substr(at, n_prompt_bytes - prompt.size());
  }
  std::string quoted;
  for (const char c : prompt) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      quoted += "\\n";
    } else if (byte >= 0x20 && byte < 0x7F) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  const std::string body = fmt::format(
      R"({{"prompt":"{}","max_tokens":{},"temperature":0,"ignore_eos":true}})", quoted, n_tokens);
  return fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
}

double median(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return static_cast<double>(*middle);
}

/// 32 requests at once. `router_us`: the router's processor time for a request; `per_core`:
/// requests a second that one core could do at that price.
void throughput(benchmark::State& state, const std::string& roles, size_t n_prompt_bytes,
                int n_tokens) {
  const Cluster cluster(roles);
  std::vector<std::string> requests;
  for (size_t i = 0; i < 64; ++i) requests.push_back(request(n_prompt_bytes, n_tokens, i));
  std::vector<std::unique_ptr<Connection>> connections;
  std::vector<pollfd> waits;
  for (size_t i = 0; i < 32; ++i) {
    connections.push_back(std::make_unique<Connection>(cluster.router().port()));
    waits.push_back({connections.back()->fd(), POLLIN, 0});
    connections.back()->ask(requests[i]);
  }
  const double begin_s = cluster.router().cpu_seconds();
  size_t n_sent = 0;
  for (const auto& one : connections) one->send(requests[n_sent++ % requests.size()]);
  // An iteration is one answer; another request goes out in its place.
  std::vector<size_t> done;
  for (auto _ : state) {
    while (done.empty()) {
      BATON_CHECK(::poll(waits.data(), waits.size(), -1) > 0);
      for (size_t i = 0; i < waits.size(); ++i) {
        if (waits[i].revents != 0 && connections[i]->read()) done.push_back(i);
      }
    }
    connections[done.back()]->send(requests[n_sent++ % requests.size()]);
    done.pop_back();
  }
  const double router_s = cluster.router().cpu_seconds() - begin_s;
  const double n = static_cast<double>(state.iterations());
  state.counters["router_us"] = 1e6 * router_s / n;
  state.counters["per_core"] = n / router_s;
  state.counters["per_second"] = benchmark::Counter(n, benchmark::Counter::kIsRate);
}

/// One request at a time, in turn straight to an engine and through the router.
void latency(benchmark::State& state, size_t n_prompt_bytes) {
  const Cluster cluster("B");
  Connection direct(cluster.engines().port());
  Connection routed(cluster.router().port());
  std::vector<std::string> requests;
  for (size_t i = 0; i < 16; ++i) {
    requests.push_back(request(n_prompt_bytes, 1, i));
    direct.ask(requests.back());  // its KV is cached from now on
  }
  std::vector<int64_t> direct_ns;
  std::vector<int64_t> routed_ns;
  const double begin_s = cluster.router().cpu_seconds();
  for (auto _ : state) {
    const std::string& one = requests[direct_ns.size() % requests.size()];
    direct_ns.push_back(direct.ask(one));
    routed_ns.push_back(routed.ask(one));
  }
  state.counters["router_us"] =
      1e6 * (cluster.router().cpu_seconds() - begin_s) / static_cast<double>(state.iterations());
  state.counters["direct_p50_us"] = 1e-3 * median(direct_ns);
  state.counters["routed_p50_us"] = 1e-3 * median(routed_ns);
  state.counters["added_p50_us"] = 1e-3 * (median(routed_ns) - median(direct_ns));
}

BENCHMARK_CAPTURE(throughput, both_100_bytes, "B", 100, 1)->UseRealTime();
BENCHMARK_CAPTURE(throughput, both_4_kb, "B", 4096, 1)->UseRealTime();
BENCHMARK_CAPTURE(throughput, handoff_4_kb, "PD", 4096, 1)->UseRealTime();
BENCHMARK_CAPTURE(throughput, both_100_bytes_64_tokens, "B", 100, 64)->UseRealTime();
BENCHMARK_CAPTURE(latency, 100_bytes, 100)->UseRealTime();
BENCHMARK_CAPTURE(latency, 4_kb, 4096)->UseRealTime();
// A tiny vocabulary makes more tokens of so much text than the stand-in takes.
[[maybe_unused]] const bool has_vocabulary = [] {
  if (!text::bench_tokenizer("smollm2").real) return false;
  benchmark::RegisterBenchmark("latency/100_kb", [](benchmark::State& state) {
    latency(state, 100'000);
  })->UseRealTime();
  return true;
}();

}  // namespace
}  // namespace baton::testing
