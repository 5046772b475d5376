#include <algorithm>

#include "base/check.h"
#include "engine/action.h"

namespace baton::engine {
namespace {

// Prefill kernels work on panels of this many rows: a chunk that isn't a multiple pays for padding.
constexpr int kPanelTokens = 128;

int round_down(int n, int unit) { return n / unit * unit; }

/// Tokens of the next chunk, 0 = none in this step.
int chunk_tokens(const Sequence& sequence, const ClassRun& run, const Batch& batch) {
  const int left = run.end - sequence.n_computed;
  int room = std::min(batch.tokens_left, batch.prompt_tokens_left);
  if (sequence.request->needs_prompt_logits()) room = std::min(room, batch.prompt_logits_left);
  if (left <= room) return left;
  if (run.kernel_class == linalg::KernelClass::kDecode) return room;
  return room >= kPanelTokens ? round_down(room, kPanelTokens) : round_down(room, kv::kBlockTokens);
}

void add_chunk(Sequence& sequence, Batch& batch) {
  const ClassRun run = next_class_run(sequence);
  const int n = chunk_tokens(sequence, run, batch);
  if (n == 0) return;
  const int begin = sequence.n_computed;
  const int end = begin + n;
  int n_logits = end == sequence.n_tokens() && !sequence.request->send ? 1 : 0;
  if (sequence.request->needs_prompt_logits()) {
    n_logits = n;
    batch.prompt_logits_left -= n;
  }
  batch.add({.sequence = &sequence,
             .begin = begin,
             .end = end,
             .kernel_class = run.kernel_class,
             .n_logits = n_logits,
             .decodes = false});
}

}  // namespace

void PrefillAction::plan(Scheduler& scheduler, Batch& batch) {
  batch.prompt_tokens_left =
      batch.decodes() ? std::min(batch.tokens_left, mixed_tokens_) : batch.tokens_left;
  for (Sequence* sequence : scheduler.running()) {
    if (!sequence->decoding()) add_chunk(*sequence, batch);
  }
  // Late, and only into room that is left: the later, the more of its prefix may be cached.
  while (!batch.preempted && batch.tokens_left >= kv::kBlockTokens) {
    const Admission admission = scheduler.plan_admission();
    if (!admission.fits) {
      // Nobody runs whose end would free blocks: one of those that wait with blocks has to go.
      if (scheduler.running().empty() && scheduler.preempt_worst_ready()) continue;
      return;
    }
    // Whoever only decodes may still come in; a prompt that gets nothing waits.
    const bool gets_something = batch.prompt_tokens_left >= kv::kBlockTokens;
    if (!gets_something && !admission.sequence->decoding()) return;
    scheduler.apply(admission);
    Sequence& sequence = *admission.sequence;
    if (!sequence.decoding()) {
      add_chunk(sequence, batch);
    } else {
      const bool grown = scheduler.grow(sequence);
      BATON_CHECK(grown, "the plan counted this block");
      batch.add(decode_row(sequence));
    }
  }
}

}  // namespace baton::engine
