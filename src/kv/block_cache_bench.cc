// The engine thread's bookkeeping for a prompt of a given length, and under eviction.
#include <benchmark/benchmark.h>

#include "kv/block_cache.h"

namespace baton::kv {
namespace {

constexpr int kBlockTokensHere = 16;

std::vector<TokenId> prompt(int n_tokens, TokenId start) {
  std::vector<TokenId> tokens(static_cast<size_t>(n_tokens));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = start + static_cast<TokenId>(i * 7 % 1000);
  return tokens;
}

/// A request whose whole prompt is cached: match, plan, take, give back.
void BM_CachedPrompt(benchmark::State& state) {
  const int n_tokens = static_cast<int>(state.range(0));
  const int n_blocks = n_tokens / kBlockTokensHere;
  BlockCache cache(n_blocks, kBlockTokensHere);
  const auto tokens = prompt(n_tokens, 0);
  std::vector<BlockId> table;
  benchmark::DoNotOptimize(cache.allocate(n_blocks, table));
  cache.commit(tokens, table);
  cache.release(table);
  for (auto _ : state) {
    benchmark::DoNotOptimize(cache.match_tokens(tokens));
    benchmark::DoNotOptimize(cache.match_evictable(tokens));
    const auto taken = cache.acquire_prefix(tokens);
    cache.release(taken);
  }
  state.SetItemsProcessed(state.iterations() * n_blocks);
}
BENCHMARK(BM_CachedPrompt)->Arg(512)->Arg(8192)->Arg(131072);

/// A new prompt in a full cache: evict, allocate, commit, give back.
void BM_NewPromptInAFullCache(benchmark::State& state) {
  const int n_tokens = static_cast<int>(state.range(0));
  const int n_blocks = n_tokens / kBlockTokensHere;
  BlockCache cache(8 * n_blocks, kBlockTokensHere);
  TokenId start = 0;
  std::vector<BlockId> table;
  for (auto _ : state) {
    const auto tokens = prompt(n_tokens, start += 1000);
    table.clear();
    benchmark::DoNotOptimize(cache.allocate(n_blocks, table));
    cache.commit(tokens, table);
    cache.release(table);
  }
  state.SetItemsProcessed(state.iterations() * n_blocks);
}
BENCHMARK(BM_NewPromptInAFullCache)->Arg(512)->Arg(8192)->Arg(131072);

/// One decode step of a long sequence: commit when nothing new is full.
void BM_CommitOfALongSequence(benchmark::State& state) {
  const int n_tokens = static_cast<int>(state.range(0));
  BlockCache cache(n_tokens / kBlockTokensHere, kBlockTokensHere);
  const auto tokens = prompt(n_tokens, 0);
  std::vector<BlockId> table;
  benchmark::DoNotOptimize(cache.allocate(cache.n_blocks(), table));
  cache.commit(tokens, table);
  for (auto _ : state) cache.commit(tokens, table);
}
BENCHMARK(BM_CommitOfALongSequence)->Arg(131072);

}  // namespace
}  // namespace baton::kv
