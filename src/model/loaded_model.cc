#include "model/loaded_model.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace baton::model {

LoadedModel::LoadedModel(const LoadOptions& options)
    : pool_(ThreadPoolOptions{.n_threads = options.n_threads, .cpus = {}}),
      context_{options.kernels, pool_, workspace_} {}

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(const std::string& path,
                                                       const LoadOptions& options) {
  auto file = format::GgufFile::open(path);
  if (!file) return tl::unexpected(file.error());
  auto checkpoint = read_checkpoint(std::make_shared<const format::GgufFile>(std::move(*file)));
  if (!checkpoint) return tl::unexpected(checkpoint.error());
  std::unique_ptr<LoadedModel> out(new LoadedModel(options));
  auto model = Transformer::create(out->context_, std::move(*checkpoint), options.transformer);
  if (!model) return tl::unexpected(model.error());
  out->model_ = std::move(*model);
  out->n_blocks_ = options.kv_tokens / kv::kBlockTokens;
  const kv::KvLayout layout = out->model_->kv_layout(out->n_blocks_, options.kv_type);
  // Not zero: what was never written must never matter.
  out->memory_.assign(layout.total_bytes(), std::byte{0x7f});
  out->layout_ = layout;
  out->model_->bind_kv(layout, out->memory_.data());
  return out;
}

std::vector<BlockId> LoadedModel::new_table(int n_tokens) {
  std::vector<BlockId> table;
  for (int i = 0; i < n_tokens; i += kv::kBlockTokens) {
    BATON_CHECK(n_used_ < n_blocks_, "kv_tokens is too small for this test");
    // From both ends in turn, so that neighbours in a sequence are not neighbours in memory.
    const int n = n_used_++;
    table.push_back(BlockId{n % 2 == 0 ? n / 2 : n_blocks_ - 1 - n / 2});
  }
  return table;
}

std::span<const std::byte> LoadedModel::kv_block(int layer, BlockId block) const {
  return std::span(memory_).subspan(layout_.offset(layer, block), layout_.block_bytes());
}

void LoadedModel::forget_tables() { n_used_ = 0; }

void LoadedModel::run(const Run& run, std::span<const BlockId> table, const RowSink& sink) {
  std::vector<float> logits;
  for (int begin = run.begin; begin < run.end; begin += run.chunk) {
    const int n = std::min(run.chunk, run.end - begin);
    const int n_logits = std::clamp(begin + n - run.first_logits, 0, n);
    logits.resize(size_t(n_logits) * size_t(n_vocab()));
    const SeqSlice slice{table, begin, run.ids.subspan(size_t(begin), size_t(n)), run.kernel_class,
                         n_logits};
    model_->forward({&slice, 1}, logits.data());
    for (int i = 0; i < n_logits; ++i) {
      sink(begin + n - n_logits + i,
           std::span(logits).subspan(size_t(i) * size_t(n_vocab()), size_t(n_vocab())));
    }
  }
}

std::vector<float> LoadedModel::all_logits(std::span<const TokenId> ids,
                                           linalg::KernelClass kernel_class, int chunk) {
  std::vector<float> out;
  const int n = static_cast<int>(ids.size());
  const std::vector<BlockId> table = new_table(n);
  run({.ids = ids, .begin = 0, .end = n, .kernel_class = kernel_class, .chunk = chunk}, table,
      [&](int, std::span<const float> row) { out.insert(out.end(), row.begin(), row.end()); });
  return out;
}

std::string cached_model_path(const std::string& file) {
  const char* cache = std::getenv("BATON_CACHE");
  const char* home = std::getenv("HOME");
  const std::string dir = cache != nullptr
                              ? std::string(cache)
                              : std::string(home != nullptr ? home : ".") + "/.cache/baton";
  return dir + "/models/" + file;
}

std::vector<linalg::KernelSet> runnable_kernels() {
  std::vector<linalg::KernelSet> out;
  for (const char* name : {"reference", "portable", "avx2", "avx512", "amx"}) {
    if (const auto set = linalg::choose_kernels(name, cpu_features())) out.push_back(*set);
  }
  return out;
}

}  // namespace baton::model
