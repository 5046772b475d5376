// Decode-class Linear on the shapes of the two models that baton is tested with: weight bytes/s (to
// be read beside ReadBandwidth, which reads as many bytes and does nothing else) and GFLOP/s.
// Int8Linear: the same weights on activations of 8 bits, the prefill class that can be asked for.
//
// Each benchmark goes round several copies of its matrix, 96 MB in all, as a decode step goes
// through the layers of a model: no matrix stays in a core's own caches.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/thread_pool.h"
#include "linalg/aligned_buffer.h"
#include "linalg/linear.h"

namespace baton::linalg {
namespace {

constexpr size_t kModelBytes = size_t{96} << 20;

struct Shape {
  const char* of;
  TensorType type;
  int64_t n_in;
  int64_t n_out;
};

constexpr Shape kShapes[] = {
    {"smollm2_qkv", TensorType::kQ4_1, 576, 960},
    {"smollm2_o", TensorType::kQ4_1, 576, 576},
    {"smollm2_gate_up", TensorType::kQ4_1, 576, 3072},
    {"smollm2_down", TensorType::kQ4_1, 1536, 576},
    {"smollm2_head", TensorType::kQ8_0, 576, 49152},
    {"gemma3_qkv", TensorType::kQ5_0, 640, 1536},
    {"gemma3_o", TensorType::kQ4_K, 1024, 640},
    {"gemma3_gate_up", TensorType::kQ5_0, 640, 4096},
    {"gemma3_down", TensorType::kQ6_K, 2048, 640},
    {"gemma3_head", TensorType::kQ8_0, 640, 262144},
    {"same", TensorType::kQ4_0, 1024, 4096},
    {"same", TensorType::kQ4_1, 1024, 4096},
    {"same", TensorType::kQ4_K, 1024, 4096},
    {"same", TensorType::kQ5_0, 1024, 4096},
    {"same", TensorType::kQ5_1, 1024, 4096},
    {"same", TensorType::kQ5_K, 1024, 4096},
    {"same", TensorType::kQ6_K, 1024, 4096},
    {"same", TensorType::kQ8_0, 1024, 4096},
    {"same", TensorType::kBF16, 1024, 4096},
    {"same", TensorType::kF16, 1024, 4096},
    {"same", TensorType::kF32, 1024, 4096},
};

/// The pool and the kernels of one number of threads; pinned as an engine's are.
struct Machine {
  explicit Machine(int n_threads)
      : pool({n_threads, allowed_cpus()}),
        context{*choose_kernels("", cpu_features()), pool, workspace} {}
  ThreadPool pool;
  Workspace workspace;
  Context context;
};

/// Copies of one matrix; the last one made is kept for the next benchmark.
const std::vector<std::unique_ptr<Linear>>& copies_of(Machine& machine, const Shape& shape) {
  static const Shape* made = nullptr;
  static std::vector<std::unique_ptr<Linear>> copies;
  if (made == &shape) return copies;
  copies.clear();
  // Finite whatever the type: every scale is the float16 0x2B2B (or bfloat16, float32 alike).
  const size_t n_bytes = row_bytes(shape.type, shape.n_in) * static_cast<size_t>(shape.n_out);
  const std::vector<std::byte> bytes(n_bytes, std::byte{0x2B});
  const MatrixView view{shape.type, shape.n_out, shape.n_in, bytes.data()};
  for (size_t total = 0; total == 0 || total + n_bytes <= kModelBytes; total += n_bytes) {
    copies.push_back(*make_linear(machine.context, KernelClass::kDecode, {&view, 1}));
  }
  made = &shape;
  return copies;
}

void linear(benchmark::State& state, const Shape& shape, int n_rows, int n_threads,
            ActivationType activations) {
  Machine machine(n_threads);
  const auto& copies = copies_of(machine, shape);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n_rows * shape.n_in));
  for (float& f : x) f = normal(random);
  std::vector<float> y(static_cast<size_t>(n_rows * shape.n_out));
  size_t next = 0;
  for (auto _ : state) {
    if (activations == ActivationType::kInt8) {
      copies[next]->apply_int8(machine.context, x.data(), n_rows, y.data());
    } else {
      copies[next]->apply(machine.context, x.data(), n_rows, y.data());
    }
    next = (next + 1) % copies.size();
  }
  const auto n = static_cast<double>(state.iterations());
  using benchmark::Counter;
  state.counters["weight_bytes/s"] =
      Counter(n * static_cast<double>(copies[0]->bytes()), Counter::kIsRate);
  state.counters["flop/s"] =
      Counter(2.0 * n * static_cast<double>(shape.n_in * shape.n_out * n_rows), Counter::kIsRate);
}

void read_bandwidth(benchmark::State& state, int n_threads) {
  Machine machine(n_threads);
  auto memory = AlignedBuffer::create(kModelBytes, "benchmark");
  if (!memory) return state.SkipWithError(memory.error().message.c_str());
  std::memset(memory->data(), 1, memory->size());
  const auto* words = memory->as<uint64_t>();
  std::vector<uint64_t> sums(static_cast<size_t>(64 * n_threads));
  for (auto _ : state) {
    machine.pool.run([&](int thread) {
      const size_t n = memory->size() / 8 / static_cast<size_t>(n_threads);
      const uint64_t* from = words + n * static_cast<size_t>(thread);
      uint64_t sum[8] = {};
      for (size_t i = 0; i < n; i += 8) {
        for (size_t k = 0; k < 8; ++k) sum[k] += from[i + k];
      }
      for (const uint64_t s : sum) sums[static_cast<size_t>(64 * thread)] += s;
    });
    benchmark::DoNotOptimize(sums.data());
  }
  state.counters["weight_bytes/s"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(memory->size()),
      benchmark::Counter::kIsRate);
}

void add(const char* what, const Shape& shape, int n_rows, int n_threads,
         ActivationType activations) {
  const std::string name = std::string(what) + "/" + shape.of + "/" +
                           std::string(info(shape.type).name) + "/" + std::to_string(shape.n_in) +
                           "x" + std::to_string(shape.n_out) + "/rows:" + std::to_string(n_rows) +
                           "/threads:" + std::to_string(n_threads);
  benchmark::RegisterBenchmark(name.c_str(), [&shape, n_rows, n_threads,
                                              activations](benchmark::State& state) {
    linear(state, shape, n_rows, n_threads, activations);
  })->UseRealTime();
}

[[maybe_unused]] const bool kRegistered = [] {
  const bool int8 = has_int8_activations(*choose_kernels("", cpu_features()));
  const auto n_cpus = static_cast<int>(allowed_cpus().size());
  pin_this_thread(allowed_cpus().front());
  const std::vector<int> threads = n_cpus > 1 ? std::vector<int>{1, n_cpus} : std::vector<int>{1};
  for (const int n : threads) {
    benchmark::RegisterBenchmark(("ReadBandwidth/threads:" + std::to_string(n)).c_str(),
                                 read_bandwidth, n)
        ->UseRealTime();
  }
  for (const Shape& shape : kShapes) {
    for (const int n : threads) {
      for (const int n_rows : {1, 4, 8, 16, 32, 64, 512}) {
        add("DecodeLinear", shape, n_rows, n, ActivationType::kInt16);
      }
      if (!int8 || info(shape.type).block_values == 1) continue;
      for (const int n_rows : {16, 64, 512}) {
        add("Int8Linear", shape, n_rows, n, ActivationType::kInt8);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace baton::linalg
