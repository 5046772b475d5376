#include "router/planner.h"

#include <algorithm>
#include <utility>

namespace baton::router {
namespace {

bool contains(const std::vector<int>& engines, int engine) {
  return std::find(engines.begin(), engines.end(), engine) != engines.end();
}

Candidate candidate(int index, const Engine& engine) {
  return {.engine = index, .n_requests = engine.load.n_requests};
}

void choose(PickRecord& pick, Policy& policy) {
  pick.chosen = pick.candidates[policy.pick(pick.candidates)].engine;
}

}  // namespace

Planner::Planner(const PlannerOptions& options, const EngineTable& engines,
                 std::unique_ptr<Policy> decode_policy, std::unique_ptr<Policy> prefill_policy)
    : options_(options),
      engines_(engines),
      decode_policy_(std::move(decode_policy)),
      prefill_policy_(std::move(prefill_policy)) {}

Placement Planner::pick_decode(const Attempt& attempt, int n_preparing, int64_t now_ns) {
  Placement out;
  bool any_ready = false;
  bool any_fit = false;
  bool any_not_failed = false;
  for (int i = 0; i < engines_.size(); ++i) {
    if (!engines_[i].can_decode()) continue;
    any_ready = true;
    if (contains(attempt.lineage.unfit, i)) continue;
    any_fit = true;
    any_not_failed |= !contains(attempt.lineage.failed, i);
  }
  if (!any_fit) {
    out.kind = any_ready ? Placement::Kind::kUnfit : Placement::Kind::kNobody;
    return out;
  }
  out.kind = Placement::Kind::kDecodeFull;
  for (int i = 0; i < engines_.size(); ++i) {
    const Engine& engine = engines_[i];
    if (!engine.can_decode()) continue;
    if (contains(attempt.lineage.unfit, i)) {
      out.pick.passed_over.emplace_back(i, "can never run it");
    } else if (any_not_failed && contains(attempt.lineage.failed, i)) {
      out.pick.passed_over.emplace_back(i, "failed it before");
    } else if (!has_room(attempt, engine, now_ns)) {
      out.pick.passed_over.emplace_back(i, "full");
    } else if (prefill_room(attempt, engine, n_preparing, now_ns) == PrefillRoom::kFull) {
      out.pick.passed_over.emplace_back(i, "its prefill engines are full");
      out.kind = Placement::Kind::kPrefillFull;
    } else {
      out.pick.candidates.push_back(candidate(i, engine));
    }
  }
  if (out.pick.candidates.empty()) return out;
  choose(out.pick, *decode_policy_);
  out.kind = Placement::Kind::kPlaced;
  return out;
}

Placement Planner::pick_prefill(const Attempt& attempt, int64_t now_ns) {
  Placement out;
  const Engine& decode = engines_[attempt.decode];
  for (int i = 0; i < engines_.size(); ++i) {
    const Engine& engine = engines_[i];
    if (!engine.is_prefill()) continue;
    if (!may_send(attempt, engine, i, decode)) {
      out.pick.passed_over.emplace_back(i, "failed it before, or can't hand over");
    } else if (free_sends(engine, now_ns) == 0) {
      out.pick.passed_over.emplace_back(i, "full");
      out.kind = Placement::Kind::kPrefillFull;
    } else {
      out.pick.candidates.push_back(candidate(i, engine));
    }
  }
  if (out.pick.candidates.empty()) {
    if (awaits_prefill_until_ns(now_ns)) out.kind = Placement::Kind::kPrefillFull;
    return out;
  }
  choose(out.pick, *prefill_policy_);
  out.kind = Placement::Kind::kPlaced;
  return out;
}

int Planner::handover_end(const ClientRequest& client, const Engine& engine) const {
  const int block = std::max(engine.info.block_tokens, 1);
  return (client.n_prompt() - 1) / block * block;
}

bool Planner::may_send(const Attempt& attempt, const Engine& prefill, int index,
                       const Engine& decode) const {
  return prefill.is_prefill() && can_hand_over(prefill, decode) &&
         !contains(attempt.lineage.failed, index);
}

bool Planner::any_may_send(const Attempt& attempt, const Engine& decode) const {
  for (int i = 0; i < engines_.size(); ++i) {
    if (may_send(attempt, engines_[i], i, decode)) return true;
  }
  return false;
}

std::optional<int64_t> Planner::awaits_prefill_until_ns(int64_t now_ns) const {
  std::optional<int64_t> out;
  for (int i = 0; i < engines_.size(); ++i) {
    const Engine& engine = engines_[i];
    const bool lost =
        !engine.ready() && engine.info.incarnation != 0 && engine.info.role == Role::kPrefill;
    const int64_t until_ns = engine.lost_ns + options_.prefill_wait_ns;
    if (lost && now_ns < until_ns) out = std::max(out.value_or(until_ns), until_ns);
  }
  return out;
}

int Planner::free_sends(const Engine& prefill, int64_t now_ns) const {
  if (now_ns < prefill.load.full_until_ns) return 0;
  return std::max(options_.max_sends - prefill.load.n_requests, 0);
}

Planner::PrefillRoom Planner::prefill_room(const Attempt& attempt, const Engine& decode,
                                           int n_preparing, int64_t now_ns) const {
  if (decode.info.role == Role::kBoth || !wants_prefill(attempt.client->n_prompt()) ||
      handover_end(*attempt.client, decode) == 0) {
    return PrefillRoom::kNoEngine;
  }
  bool any = false;
  int n_free = 0;
  for (int i = 0; i < engines_.size(); ++i) {
    if (!may_send(attempt, engines_[i], i, decode)) continue;
    any = true;
    n_free += free_sends(engines_[i], now_ns);
  }
  if (!any) return awaits_prefill_until_ns(now_ns) ? PrefillRoom::kFull : PrefillRoom::kNoEngine;
  return n_free > n_preparing ? PrefillRoom::kRoom : PrefillRoom::kFull;
}

bool Planner::has_room(const Attempt& attempt, const Engine& engine, int64_t now_ns) const {
  if (now_ns < engine.load.full_until_ns) return false;
  // A request of more choices than the batch holds runs alone.
  const int64_t max_choices = int64_t{engine.info.max_batch} + options_.max_extra_choices;
  return engine.load.n_choices == 0 || engine.load.n_choices + attempt.n_choices() <= max_choices;
}

}  // namespace baton::router
