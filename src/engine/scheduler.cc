#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/layout.h"

namespace baton::engine {
namespace {

int blocks_for(int n_tokens) { return (n_tokens + kv::kBlockTokens - 1) / kv::kBlockTokens; }

/// 16·⌊(n−1)/16⌋: the whole blocks of a prompt that leave at least one token to sample from.
int whole_blocks_end(int n_prompt) { return (n_prompt - 1) / kv::kBlockTokens * kv::kBlockTokens; }

Sequence* first_follower(const Request& request) {
  for (const auto& sequence : request.choices) {
    if (sequence->state == SequenceState::kFollowing) return sequence.get();
  }
  return nullptr;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, kv::BlockCache& cache, KvMemory& memory)
    : options_(options), cache_(cache), memory_(memory) {}

void Scheduler::add(std::unique_ptr<Request> request) {
  BATON_CHECK(request->spec.n_choices >= 1 && !request->spec.prompt.empty());
  request->update.id = request->spec.id;
  request->order = n_added_++;
  for (int i = 0; i < request->spec.n_choices; ++i) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request = request.get();
    sequence->choice = request->spec.first_choice + i;
    request->choices.push_back(std::move(sequence));
  }
  Sequence& leader = *request->choices.front();
  leader.tokens = request->spec.prompt;
  const std::vector<TokenId>& output = request->spec.output;
  leader.tokens.insert(leader.tokens.end(), output.begin(), output.end());
  const RequestId id = request->spec.id;
  const bool inserted = requests_.emplace(id, std::move(request)).second;
  BATON_CHECK(inserted, "request id {} is in use", id.value);
  enqueue(leader);
}

Request* Scheduler::find(RequestId id) const {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : it->second.get();
}

void Scheduler::erase(RequestId id) {
  const auto it = requests_.find(id);
  BATON_CHECK(it != requests_.end() && it->second->finished());
  requests_.erase(it);
}

std::vector<RequestId> Scheduler::ids() const {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

bool Scheduler::prefill_class(const Request& request) const {
  return request.n_prompt() >= options_.prefill_min_tokens;
}

int Scheduler::prefill_end(const Request& request) const {
  if (options_.role == Role::kDecode || !prefill_class(request)) return 0;
  return whole_blocks_end(request.n_prompt());
}

int Scheduler::matchable_tokens(const Sequence& sequence) const {
  const Request& request = *sequence.request;
  if (request.needs_prompt_logits()) return 0;
  // The newest token always has to be computed: the next one is sampled from its logits.
  const int n = sequence.n_tokens() - 1;
  if (!options_.exact_prefix || !prefill_class(request)) return n;
  return std::min(n, whole_blocks_end(request.n_prompt()));
}

// What the prefix tree knows a sequence's first `n` tokens by. Prompts of the decode class have
// keys of their own, so that neither class takes the other's blocks, whose bits differ. Valid until
// the next call.
std::span<const TokenId> Scheduler::tree_keys(const Sequence& sequence, int n) const {
  const auto tokens = std::span(sequence.tokens).first(static_cast<size_t>(n));
  if (prefill_class(*sequence.request)) return tokens;
  keys_.clear();
  for (const TokenId token : tokens) keys_.push_back(~token);
  return keys_;
}

Admission Scheduler::plan_admission() const {
  Admission plan;
  if (waiting_.empty() || running_.size() >= static_cast<size_t>(options_.max_batch)) return plan;
  plan.sequence = *waiting_.begin();
  plan.n_matchable = matchable_tokens(*plan.sequence);
  const auto prefix = tree_keys(*plan.sequence, plan.n_matchable);
  plan.n_matched = cache_.match_tokens(prefix);
  plan.n_new_blocks = blocks_for(plan.sequence->n_tokens()) - plan.n_matched / kv::kBlockTokens;
  // One block is kept for each running sequence, or the newcomer would soon push one of them out.
  const int reserve = static_cast<int>(running_.size());
  plan.fits = cache_.available() - cache_.match_evictable(prefix) >= plan.n_new_blocks + reserve;
  return plan;
}

void Scheduler::apply(const Admission& admission) {
  BATON_CHECK(admission.fits && admission.sequence->state == SequenceState::kWaiting);
  Sequence& sequence = *admission.sequence;
  Request& request = *sequence.request;
  sequence.table = cache_.acquire_prefix(tree_keys(sequence, admission.n_matchable));
  sequence.n_computed = static_cast<int>(sequence.table.size()) * kv::kBlockTokens;
  sequence.n_committed_blocks = static_cast<int>(sequence.table.size());
  BATON_CHECK(sequence.n_computed == admission.n_matched);
  const bool allocated = cache_.allocate(admission.n_new_blocks, sequence.table);
  BATON_CHECK(allocated, "a plan that fits must be applicable");
  if (!request.prefill_end) {
    request.prefill_end = prefill_end(request);
    request.n_cached_tokens = sequence.n_computed;
    counters_.n_prefix_queries += request.n_prompt();
    counters_.n_prefix_hits += sequence.n_computed;
    ++counters_.n_left_queue;
  }
  waiting_.erase(&sequence);
  run(sequence);
}

bool Scheduler::grow(Sequence& sequence) {
  const auto index = static_cast<size_t>((sequence.n_tokens() - 1) / kv::kBlockTokens);
  BATON_CHECK(index <= sequence.table.size());
  if (index == sequence.table.size()) return cache_.allocate(1, sequence.table);
  const BlockId held = sequence.table[index];
  if (!cache_.shared(held)) return true;
  if (!cache_.allocate(1, sequence.table)) return false;
  const BlockId copy = sequence.table.back();
  sequence.table.pop_back();
  memory_.copy_block(held, copy);
  sequence.table[index] = copy;
  cache_.release(std::span(&held, 1));
  return true;
}

void Scheduler::enqueue(Sequence& sequence) {
  sequence.state = SequenceState::kWaiting;
  const bool inserted = waiting_.insert(&sequence).second;
  BATON_CHECK(inserted);
}

void Scheduler::run(Sequence& sequence) {
  sequence.state = SequenceState::kRunning;
  running_.insert(std::lower_bound(running_.begin(), running_.end(), &sequence, RunsBefore{}),
                  &sequence);
}

void Scheduler::stop_running(Sequence& sequence) {
  const auto it = std::find(running_.begin(), running_.end(), &sequence);
  BATON_CHECK(it != running_.end());
  running_.erase(it);
  cache_.release(sequence.table);
  sequence.table.clear();
  sequence.n_computed = 0;
  sequence.n_committed_blocks = 0;
}

void Scheduler::preempt(Sequence& sequence) {
  BATON_CHECK(sequence.state == SequenceState::kRunning);
  stop_running(sequence);
  enqueue(sequence);
  ++counters_.n_preemptions;
}

void Scheduler::fork_followers(Sequence& leader) {
  while (Sequence* follower = first_follower(*leader.request)) {
    follower->tokens = leader.tokens;
    if (running_.size() >= static_cast<size_t>(options_.max_batch)) {
      enqueue(*follower);
      continue;
    }
    cache_.retain(leader.table);
    follower->table = leader.table;
    follower->n_computed = leader.n_computed;
    follower->n_committed_blocks = leader.n_committed_blocks;
    run(*follower);
  }
}

void Scheduler::hand_over(Sequence& from, Sequence& to) {
  to.tokens = std::move(from.tokens);
  if (from.state == SequenceState::kWaiting) {
    waiting_.erase(&from);
    enqueue(to);
    return;
  }
  to.table = std::exchange(from.table, {});
  to.n_computed = std::exchange(from.n_computed, 0);
  to.n_committed_blocks = std::exchange(from.n_committed_blocks, 0);
  running_.erase(std::find(running_.begin(), running_.end(), &from));
  run(to);
}

void Scheduler::finish(Sequence& sequence) {
  Request& request = *sequence.request;
  if (sequence.state == SequenceState::kFinished) return;
  Sequence* follower = first_follower(request);
  const bool leads = sequence.state != SequenceState::kFollowing && follower != nullptr;
  if (leads) {
    hand_over(sequence, *follower);
  } else if (sequence.state == SequenceState::kRunning) {
    stop_running(sequence);
  } else if (sequence.state == SequenceState::kWaiting) {
    waiting_.erase(&sequence);
  }
  sequence.state = SequenceState::kFinished;
  sequence.tokens = {};
  if (request.finished() && !request.prefill_end) ++counters_.n_left_queue;
}

void Scheduler::commit(Sequence& sequence) {
  const Request& request = *sequence.request;
  int n = sequence.n_computed;
  if (options_.exact_prefix && prefill_class(request)) n = std::min(n, *request.prefill_end);
  const int n_blocks = n / kv::kBlockTokens;
  if (n_blocks <= sequence.n_committed_blocks) return;
  cache_.commit(tree_keys(sequence, n_blocks * kv::kBlockTokens), sequence.table);
  sequence.n_committed_blocks = n_blocks;
}

}  // namespace baton::engine
