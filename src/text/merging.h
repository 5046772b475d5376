// The heart of both BPE and SentencePiece: join the best pair of neighbours until none is left.
//
// Best is the lowest rank, leftmost on a tie. Words are mostly short, where scanning an array beats
// everything; long ones go through a heap, so that time is O(n log n) on any input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "text/hash_tables.h"

namespace baton::text {

/// A run of the word's bytes that is one symbol so far.
struct Symbol {
  int32_t id = -1;       ///< -1: no symbol of the vocabulary
  uint32_t begin = 0;    ///< byte offset in the word
  uint32_t n_bytes = 0;  ///< 0: joined to its left neighbour (only inside merge_long)
};

/// Working memory of one encode call, reused from word to word.
struct MergeScratch {
  struct Candidate {
    uint32_t rank = 0;
    int32_t left = 0;
    int32_t right = 0;
    int32_t symbol = 0;
    uint32_t n_bytes = 0;  ///< of both together: tells whether either has changed since
  };
  struct Link {
    int32_t prev = -1;
    int32_t next = -1;
  };
  std::vector<Symbol> symbols;
  std::vector<Link> links;
  std::vector<Candidate> heap;
};

/// Words of up to so many symbols take the quadratic way.
inline constexpr size_t kShortWord = 32;

/// `pair(left, right)` gives the Merge of two neighbouring symbols.
template <typename PairFn>
void merge_short(std::vector<Symbol>& symbols, PairFn& pair) {
  Merge merges[kShortWord + 1];
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) merges[i] = pair(symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].symbol < 0) break;
    symbols[best].id = merges[best].symbol;
    symbols[best].n_bytes += symbols[best + 1].n_bytes;
    --n;
    for (size_t i = best + 1; i < n; ++i) {
      symbols[i] = symbols[i + 1];
      merges[i] = merges[i + 1];  // the last one is of no pair and never looked at
    }
    if (best > 0) merges[best - 1] = pair(symbols[best - 1], symbols[best]);
    if (best + 1 < n) merges[best] = pair(symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

template <typename PairFn>
void merge_long(MergeScratch& scratch, PairFn& pair) {
  using Candidate = MergeScratch::Candidate;
  std::vector<Symbol>& symbols = scratch.symbols;
  auto& links = scratch.links;
  auto& heap = scratch.heap;
  const auto worse = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const Symbol& a = symbols[static_cast<size_t>(left)];
    const Symbol& b = symbols[static_cast<size_t>(right)];
    const Merge merge = pair(a, b);
    if (merge.symbol < 0) return;
    heap.push_back({merge.rank, left, right, merge.symbol, a.n_bytes + b.n_bytes});
    std::push_heap(heap.begin(), heap.end(), worse);
  };

  const int32_t n = static_cast<int32_t>(symbols.size());
  links.resize(symbols.size());
  heap.clear();
  for (int32_t i = 0; i < n; ++i) links[static_cast<size_t>(i)] = {i - 1, i + 1 < n ? i + 1 : -1};
  for (int32_t i = 0; i + 1 < n; ++i) consider(i, i + 1);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<size_t>(best.left)];
    Symbol& right = symbols[static_cast<size_t>(best.right)];
    if (left.n_bytes == 0 || right.n_bytes == 0 || left.n_bytes + right.n_bytes != best.n_bytes) {
      continue;  // one of them has been joined to another meanwhile
    }
    left.id = best.symbol;
    left.n_bytes = best.n_bytes;
    right.n_bytes = 0;
    const int32_t next = links[static_cast<size_t>(best.right)].next;
    links[static_cast<size_t>(best.left)].next = next;
    if (next >= 0) links[static_cast<size_t>(next)].prev = best.left;
    consider(links[static_cast<size_t>(best.left)].prev, best.left);
    consider(best.left, next);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.n_bytes == 0; });
}

/// Joins scratch.symbols (the whole word, in order, no empty ones).
template <typename PairFn>
void merge_symbols(MergeScratch& scratch, PairFn&& pair) {
  if (scratch.symbols.size() <= kShortWord) {
    merge_short(scratch.symbols, pair);
  } else {
    merge_long(scratch, pair);
  }
}

}  // namespace baton::text
