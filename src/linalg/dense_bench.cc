// Prefill products, attention and row operations on the shapes of SmolLM2-135M and Gemma-3-270M.
// Arguments are named in the output; "threads" is the size of the pool.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "base/cpu.h"
#include "linalg/attention.h"
#include "linalg/ops.h"
#include "linalg/panel_linear.h"

namespace baton::linalg {
namespace {

std::vector<float> random_values(int64_t n) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = uniform(random);
  return values;
}

KernelSet best() { return choose_kernels("", cpu_features()).value(); }

/// A pool of state.range(0) threads and what goes with it.
struct Machine {
  explicit Machine(const benchmark::State& state)
      : pool({.n_threads = static_cast<int>(state.range(0)), .cpus = {}}) {}
  ThreadPool pool;
  Workspace workspace;
  Context context{best(), pool, workspace};
};

void rate(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] =
      benchmark::Counter(per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void prefill_linear(benchmark::State& state) {
  Machine machine(state);
  const int64_t n_in = state.range(1);
  const int64_t n_out = state.range(2);
  const int64_t n_rows = state.range(3);
  const auto w = random_values(n_in * n_out);
  const auto x = random_values(n_in * n_rows);
  std::vector<float> y(static_cast<size_t>(n_rows * n_out));
  const MatrixView view = {TensorType::kF32, n_out, n_in,
                           reinterpret_cast<const std::byte*>(w.data())};
  auto linear = make_panel_linear(machine.context, {&view, 1});
  if (!linear) {
    state.SkipWithError(linear.error().message.c_str());
    return;
  }
  for (auto _ : state) (*linear)->apply(machine.context, x.data(), n_rows, y.data());
  state.SetLabel((*linear)->describe());
  rate(state, "GFLOPS", 2.0 * double(n_in) * double(n_out) * double(n_rows));
}
BENCHMARK(prefill_linear)
    ->ArgNames({"threads", "in", "out", "rows"})
    ->ArgsProduct({{1, 2}, {576}, {576, 960, 3072}, {512}})
    ->ArgsProduct({{1, 2}, {1536}, {576}, {512}})
    ->ArgsProduct({{1, 2}, {640}, {1536, 4096}, {512}})
    ->ArgsProduct({{1, 2}, {1024, 2048}, {640}, {512}})
    ->ArgsProduct({{2}, {576}, {3072}, {64, 128, 256}})
    ->UseRealTime();

/// One layer's KV, filled, and a batch of equal sequences.
struct Batch {
  Batch(Machine& machine, int n_seqs, int end, int n_rows, int n_kv, int dim)
      : n_blocks((end + 15) / 16) {
    layer.n_kv_heads = n_kv;
    layer.head_dim = dim;
    layer.block_stride_bytes = size_t(2 * 16 * 2) * size_t(n_kv * dim);
    memory.resize(layer.block_stride_bytes * size_t(n_blocks * n_seqs));
    layer.data = memory.data();
    blocks.resize(size_t(n_blocks * n_seqs));
    for (int i = 0; i < n_blocks * n_seqs; ++i) blocks[size_t(i)] = {i};
    const auto kv = random_values(int64_t{end} * n_kv * dim);
    for (int s = 0; s < n_seqs; ++s) {
      const std::span<const BlockId> table(blocks.data() + s * n_blocks, size_t(n_blocks));
      const SeqRows all = {table, 0, end, 0};
      store_kv(machine.context, layer, {&all, 1}, {kv.data(), n_kv * dim}, {kv.data(), n_kv * dim});
      seqs.push_back({table, end - n_rows, n_rows, int64_t{s} * n_rows});
    }
  }
  int n_blocks;
  KvLayer layer;
  std::vector<std::byte> memory;
  std::vector<BlockId> blocks;
  std::vector<SeqRows> seqs;
};

void prefill_attention(benchmark::State& state) {
  Machine machine(state);
  const auto [heads, kv, dim] =
      std::tuple(int(state.range(1)), int(state.range(2)), int(state.range(3)));
  const int end = int(state.range(4));
  Batch batch(machine, 1, end, end, kv, dim);
  const auto q = random_values(int64_t{end} * heads * dim);
  std::vector<float> out(q.size());
  for (auto _ : state) {
    attention(machine.context, KernelClass::kPrefill, batch.layer, {heads, 0.125F, 0}, batch.seqs,
              {q.data(), heads * dim}, out.data());
  }
  rate(state, "GFLOPS", 2.0 * heads * dim * double(end) * end);  // causal: half of 4 n²
}
BENCHMARK(prefill_attention)
    ->ArgNames({"threads", "heads", "kv", "dim", "tokens"})
    ->ArgsProduct({{1, 2}, {9}, {3}, {64}, {512, 2048}})
    ->ArgsProduct({{1, 2}, {4}, {1}, {256}, {512, 2048}})
    ->UseRealTime();

void decode_attention(benchmark::State& state) {
  Machine machine(state);
  const auto [heads, kv, dim] =
      std::tuple(int(state.range(1)), int(state.range(2)), int(state.range(3)));
  const auto [n_seqs, end] = std::tuple(int(state.range(4)), int(state.range(5)));
  Batch batch(machine, n_seqs, end, 1, kv, dim);
  const auto q = random_values(int64_t{n_seqs} * heads * dim);
  std::vector<float> out(q.size());
  for (auto _ : state) {
    attention(machine.context, KernelClass::kDecode, batch.layer, {heads, 0.125F, 0}, batch.seqs,
              {q.data(), heads * dim}, out.data());
  }
  rate(state, "GB/s", double(n_seqs) * end * 2 * kv * dim * 2);
}
BENCHMARK(decode_attention)
    ->ArgNames({"threads", "heads", "kv", "dim", "seqs", "tokens"})
    ->ArgsProduct({{1, 2}, {9}, {3}, {64}, {1, 16}, {128, 2048}})
    ->ArgsProduct({{1, 2}, {4}, {1}, {256}, {1, 16}, {128, 2048}})
    ->UseRealTime();

void norm(benchmark::State& state) {
  Machine machine(state);
  const int64_t n_rows = state.range(1);
  const auto x = random_values(n_rows * 576);
  std::vector<float> y(x.size());
  for (auto _ : state) {
    rms_norm(machine.context, x.data(), x.data(), 1e-5F, n_rows, 576, y.data());
  }
  rate(state, "Gvalues", double(n_rows) * 576);
}
BENCHMARK(norm)->ArgNames({"threads", "rows"})->ArgsProduct({{1, 2}, {1, 16, 512}})->UseRealTime();

void silu_gate(benchmark::State& state) {
  Machine machine(state);
  const int64_t n_rows = state.range(1);
  const auto x = random_values(n_rows * 3072);
  std::vector<float> y(x.size() / 2);
  for (auto _ : state) {
    gated_activation(machine.context, GatedActivation::kSilu, x.data(), n_rows, 1536, y.data());
  }
  rate(state, "Gvalues", double(n_rows) * 1536);
}
BENCHMARK(silu_gate)
    ->ArgNames({"threads", "rows"})
    ->ArgsProduct({{1, 2}, {1, 16, 512}})
    ->UseRealTime();

}  // namespace
}  // namespace baton::linalg
