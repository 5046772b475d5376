#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/layout.h"

namespace baton::engine {
namespace {

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
  if (request->send) leader.tokens.resize(static_cast<size_t>(request->send->end));
  const auto state = request->spec.leased ? SequenceState::kReceiving : SequenceState::kWaiting;
  const RequestId id = request->spec.id;
  const bool inserted = requests_.emplace(id, std::move(request)).second;
  BATON_CHECK(inserted, "request id {} is in use", id.value);
  enter(leader, state);
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

// What passes between engines is always of the prefill class.
bool Scheduler::prefill_class(const Request& request) const {
  return request.send || request.spec.leased || request.n_prompt() >= options_.prefill_min_tokens;
}

int Scheduler::prefill_end(const Request& request) const {
  if (request.send) return request.send->end;
  if (options_.role == Role::kDecode || !prefill_class(request)) return 0;
  return whole_blocks_end(request.n_prompt());
}

int Scheduler::matchable_tokens(const Sequence& sequence) const {
  const Request& request = *sequence.request;
  if (request.needs_prompt_logits()) return 0;
  if (request.send) return sequence.n_tokens();
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

Admission Scheduler::plan(Sequence& sequence) const {
  Admission plan;
  plan.sequence = &sequence;
  if (sequence.state == SequenceState::kReady) {
    const int n_missing = blocks_for(sequence.n_tokens()) - static_cast<int>(sequence.table.size());
    plan.n_new_blocks = std::max(0, n_missing);
    // grow() will copy the block that the next token's KV goes into.
    if (n_missing <= 0 && sequence.decoding() && cache_.shared(sequence.table.back())) {
      plan.n_new_blocks = 1;
    }
    plan.fits = cache_.available() >= plan.n_new_blocks;
    return plan;
  }
  plan.n_matchable = matchable_tokens(sequence);
  const auto prefix = tree_keys(sequence, plan.n_matchable);
  plan.n_matched = cache_.match_tokens(prefix);
  plan.n_new_blocks = blocks_for(sequence.n_tokens()) - plan.n_matched / kv::kBlockTokens;
  // One block is kept for each running sequence, or the newcomer would soon push one of them out.
  const int reserve = static_cast<int>(running_.size());
  plan.fits = cache_.available() - cache_.match_evictable(prefix) >= plan.n_new_blocks + reserve;
  return plan;
}

Admission Scheduler::plan_admission() const {
  if (running_.size() >= static_cast<size_t>(options_.max_batch)) return {};
  Sequence* waiting = waiting_.empty() ? nullptr : *waiting_.begin();
  Sequence* ready = ready_.empty() ? nullptr : *ready_.begin();
  if (waiting != nullptr && (ready == nullptr || RunsBefore{}(waiting, ready))) {
    const Admission first = plan(*waiting);
    if (first.fits || ready == nullptr) return first;
  }
  return ready == nullptr ? Admission{} : plan(*ready);
}

void Scheduler::apply(const Admission& admission) {
  BATON_CHECK(admission.fits);
  Sequence& sequence = *admission.sequence;
  Request& request = *sequence.request;
  if (sequence.state == SequenceState::kReady) {
    // A decoding one gets its block by grow(), as in every step.
    const bool allocated =
        sequence.decoding() || cache_.allocate(admission.n_new_blocks, sequence.table);
    BATON_CHECK(allocated, "a plan that fits must be applicable");
    enter(sequence, SequenceState::kRunning);
    return;
  }
  BATON_CHECK(sequence.state == SequenceState::kWaiting);
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
  enter(sequence, SequenceState::kRunning);
}

std::optional<Room> Scheduler::make_room(const PrepareReceive& request, int n_leases) {
  const int n_matchable = request.match_prefix ? request.end : 0;
  const auto prefix = std::span(request.prompt).first(static_cast<size_t>(n_matchable));
  Room room;
  room.n_matched = cache_.match_tokens(prefix);
  const int n_new =
      blocks_for(static_cast<int>(request.prompt.size())) - room.n_matched / kv::kBlockTokens;
  int reserve = static_cast<int>(running_.size() + ready_.size()) + n_leases;
  if (!waiting_.empty()) reserve += plan(**waiting_.begin()).n_new_blocks;
  if (cache_.available() - cache_.match_evictable(prefix) < n_new + reserve) return std::nullopt;
  room.table = cache_.acquire_prefix(prefix);
  const bool allocated = cache_.allocate(n_new, room.table);
  BATON_CHECK(allocated, "they were counted");
  return room;
}

void Scheduler::deliver(Sequence& receiver, Room room, int n_computed, int end) {
  BATON_CHECK(receiver.state == SequenceState::kReceiving);
  Request& request = *receiver.request;
  receiver.table = std::move(room.table);
  receiver.n_computed = n_computed;
  receiver.n_committed_blocks = room.n_matched / kv::kBlockTokens;
  // A decode engine computes what didn't come in the decode class.
  request.prefill_end = options_.role == Role::kDecode ? n_computed : end;
  request.n_cached_tokens = room.n_matched;
  counters_.n_prefix_queries += request.n_prompt();
  counters_.n_prefix_hits += room.n_matched;
  ++counters_.n_left_queue;
  commit(receiver);
  enter(receiver, SequenceState::kReady);
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

void Scheduler::enter(Sequence& sequence, SequenceState state) {
  leave(sequence);
  sequence.state = state;
  if (state == SequenceState::kWaiting) waiting_.insert(&sequence);
  if (state == SequenceState::kReady) ready_.insert(&sequence);
  if (state != SequenceState::kRunning) return;
  running_.insert(std::lower_bound(running_.begin(), running_.end(), &sequence, RunsBefore{}),
                  &sequence);
}

void Scheduler::leave(Sequence& sequence) {
  if (sequence.state == SequenceState::kWaiting) waiting_.erase(&sequence);
  if (sequence.state == SequenceState::kReady) ready_.erase(&sequence);
  if (sequence.state == SequenceState::kRunning) std::erase(running_, &sequence);
}

void Scheduler::drop_blocks(Sequence& sequence) {
  cache_.release(sequence.table);
  sequence.table.clear();
  sequence.n_computed = 0;
  sequence.n_committed_blocks = 0;
}

Sequence* Scheduler::worst() const {
  Sequence* running = running_.back();
  if (ready_.empty()) return running;
  return RunsBefore{}(running, *ready_.rbegin()) ? *ready_.rbegin() : running;
}

bool Scheduler::recomputable(const Request& request) const {
  return options_.role != Role::kDecode && !request.spec.leased;
}

void Scheduler::preempt(Sequence& sequence) {
  BATON_CHECK(sequence.state == SequenceState::kRunning || sequence.state == SequenceState::kReady);
  ++counters_.n_preemptions;
  if (!recomputable(*sequence.request)) {
    lose(sequence, "preempted: no KV blocks were left", ErrorCode::kExhausted);
    return;
  }
  drop_blocks(sequence);
  enter(sequence, SequenceState::kWaiting);
}

bool Scheduler::preempt_worst_ready() {
  if (ready_.empty()) return false;
  preempt(**ready_.rbegin());
  return true;
}

void Scheduler::lose(Sequence& sequence, const std::string& why, ErrorCode code) {
  while (Sequence* follower = first_follower(*sequence.request)) {
    enter(*follower, SequenceState::kLost);
    lost_.push_back({follower, why, code});
  }
  drop_blocks(sequence);
  enter(sequence, SequenceState::kLost);
  lost_.push_back({&sequence, why, code});
}

void Scheduler::fork_followers(Sequence& leader) {
  while (Sequence* follower = first_follower(*leader.request)) {
    follower->tokens = leader.tokens;
    cache_.retain(leader.table);
    follower->table = leader.table;
    follower->n_computed = leader.n_computed;
    follower->n_committed_blocks = leader.n_committed_blocks;
    const bool full = running_.size() >= static_cast<size_t>(options_.max_batch);
    enter(*follower, full ? SequenceState::kReady : SequenceState::kRunning);
  }
}

void Scheduler::hand_over(Sequence& from, Sequence& to) {
  const SequenceState state = from.state;
  leave(from);
  to.tokens = std::move(from.tokens);
  to.table = std::exchange(from.table, {});
  to.n_computed = std::exchange(from.n_computed, 0);
  to.n_committed_blocks = std::exchange(from.n_committed_blocks, 0);
  enter(to, state);
}

void Scheduler::finish(Sequence& sequence) {
  Request& request = *sequence.request;
  if (sequence.state == SequenceState::kFinished) return;
  Sequence* follower = first_follower(request);
  if (sequence.state != SequenceState::kFollowing && follower != nullptr) {
    hand_over(sequence, *follower);
  } else {
    drop_blocks(sequence);
    leave(sequence);
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
