// What one step computes: the slices that the actions chose, under one token budget.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/sequence.h"

namespace baton::engine {

/// Tokens [begin, end) of one sequence in one step.
struct BatchItem {
  Sequence* sequence = nullptr;
  int begin = 0;
  int end = 0;
  linalg::KernelClass kernel_class = linalg::KernelClass::kDecode;
  int n_logits = 0;      ///< rows of logits, for the last tokens of the slice
  bool decodes = false;  ///< generates (else it computes a prompt, or what a preemption lost)
};

/// The row of a sequence that generates.
[[nodiscard]] inline BatchItem decode_row(Sequence& sequence) {
  return {.sequence = &sequence,
          .begin = sequence.n_computed,
          .end = sequence.n_tokens(),
          .kernel_class = linalg::KernelClass::kDecode,
          .n_logits = 1,
          .decodes = true};
}

/// Filled by the actions of a step, at most one item for each sequence.
struct Batch {
  int tokens_left = 0;         ///< of the budget
  int prompt_tokens_left = 0;  ///< of those, for chunks of prompts
  int prompt_logits_left = 0;  ///< rows of logits for echoed prompts that fit in memory
  bool preempted = false;      ///< blocks ran out in this step: nothing new is admitted
  std::vector<BatchItem> items;
  std::vector<Sequence*> cached_sends;  ///< sends with cached KV that is still to be put

  [[nodiscard]] bool empty() const { return items.empty() && cached_sends.empty(); }
  [[nodiscard]] bool decodes() const {
    return std::any_of(items.begin(), items.end(), [](const auto& item) { return item.decodes; });
  }
  [[nodiscard]] int n_tokens() const {
    int n = 0;
    for (const auto& item : items) n += item.end - item.begin;
    return n;
  }
  void add(const BatchItem& item) {
    items.push_back(item);
    tokens_left -= item.end - item.begin;
    if (!item.decodes) prompt_tokens_left -= item.end - item.begin;
  }
};

}  // namespace baton::engine
