// Tokens per second of one forward pass, by kernel set, class and rows, with two threads: SmolLM2
// where the cache has it, else a tiny model (then only a smoke test).
#include <benchmark/benchmark.h>

#include <filesystem>
#include <map>
#include <numeric>

#include "model/golden.h"
#include "model/loaded_model.h"

namespace baton::model {
namespace {

using linalg::KernelClass;

LoadedModel& model_for(linalg::KernelSet kernels) {
  static std::map<linalg::KernelSet, std::unique_ptr<LoadedModel>> models;
  std::unique_ptr<LoadedModel>& model = models[kernels];
  if (model == nullptr) {
    std::string path = cached_model_path("SmolLM2-135M-Instruct.Q4_1.gguf");
    if (!std::filesystem::exists(path)) path = golden_dir() + "/tiny/quant/Q4_1.gguf";
    LoadOptions options{.kernels = kernels, .n_threads = 2, .kv_type = TensorType::kBF16};
    auto loaded = LoadedModel::load(path, options);
    if (!loaded) {
      std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
      std::abort();
    }
    model = std::move(*loaded);
  }
  return *model;
}

/// `n_rows` tokens of one prompt from its start; logits of the last.
void prefill(benchmark::State& state, linalg::KernelSet kernels) {
  LoadedModel& model = model_for(kernels);
  const auto n_rows = static_cast<int>(state.range(0));
  std::vector<TokenId> ids(static_cast<size_t>(n_rows));
  std::iota(ids.begin(), ids.end(), 5);
  for (TokenId& id : ids) id %= model.n_vocab();
  model.forget_tables();
  const auto table = model.new_table(n_rows);
  std::vector<float> logits(static_cast<size_t>(model.n_vocab()));
  const SeqSlice slice{table, 0, ids, KernelClass::kPrefill, 1};
  for (auto _ : state) model.model().forward({&slice, 1}, logits.data());
  state.SetItemsProcessed(state.iterations() * n_rows);
}

/// A decode step of `range(0)` sequences, each at position 200.
void decode(benchmark::State& state, linalg::KernelSet kernels) {
  LoadedModel& model = model_for(kernels);
  const auto n_rows = static_cast<size_t>(state.range(0));
  const std::vector<TokenId> ids(208, 7);
  model.forget_tables();
  std::vector<std::vector<BlockId>> tables;
  std::vector<SeqSlice> slices;
  for (size_t i = 0; i < n_rows; ++i) {
    tables.push_back(model.new_table(208));
    model.run({.ids = ids,
               .end = 200,
               .kernel_class = KernelClass::kPrefill,
               .chunk = 200,
               .first_logits = 200},
              tables.back(), [](int, std::span<const float>) {});
  }
  for (const auto& table : tables) {
    slices.push_back({table, 200, std::span(ids).first(1), KernelClass::kDecode, 1});
  }
  std::vector<float> logits(n_rows * static_cast<size_t>(model.n_vocab()));
  for (auto _ : state) model.model().forward(slices, logits.data());
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

const bool kRegistered = [] {
  for (const linalg::KernelSet kernels : runnable_kernels()) {
    if (kernels == linalg::KernelSet::kReference) continue;
    const std::string set(linalg::name(kernels));
    benchmark::RegisterBenchmark(("prefill/" + set).c_str(), prefill, kernels)
        ->Arg(512)
        ->UseRealTime()
        ->MeasureProcessCPUTime()
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("decode/" + set).c_str(), decode, kernels)
        ->Arg(1)
        ->Arg(16)
        ->UseRealTime()
        ->MeasureProcessCPUTime()
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace baton::model
