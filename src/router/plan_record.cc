#include "router/plan_record.h"

#include "api/json_writer.h"

namespace baton::router {
namespace {

using Ids = std::vector<std::string>;

std::string_view id_of(const Ids& ids, int engine) { return ids[static_cast<size_t>(engine)]; }

/// Milliseconds from `begin_ns` to `end_ns`; null if one of them didn't happen.
void write_ms(api::JsonWriter& json, std::string_view key, int64_t begin_ns, int64_t end_ns) {
  json.key(key);
  if (begin_ns == 0 || end_ns == 0) {
    json.null();
  } else {
    json.number(static_cast<float>(static_cast<double>(end_ns - begin_ns) * 1e-6));
  }
}

void write_pick(api::JsonWriter& json, const PickRecord& pick, const Ids& ids) {
  json.begin_object().key("engine");
  pick.chosen < 0 ? json.null() : json.string(id_of(ids, pick.chosen));
  json.key("candidates").begin_array();
  for (const Candidate& one : pick.candidates) {
    json.begin_object().key("engine").string(id_of(ids, one.engine));
    json.key("score").begin_object();
    for (const auto& [part, value] : one.score) json.key(part).number(static_cast<float>(value));
    json.end_object().end_object();
  }
  json.end_array().key("passed_over").begin_array();
  for (const auto& [engine, why] : pick.passed_over) {
    json.begin_object().key("engine").string(id_of(ids, engine)).key("why").string(why);
    json.end_object();
  }
  json.end_array().end_object();
}

void write_measured(api::JsonWriter& json, const AttemptRecord& one) {
  json.key("measured").begin_object();
  write_ms(json, "queue_ms", one.queued_ns, one.picked_ns);
  write_ms(json, "prepare_ms", one.picked_ns, one.prepared_ns);
  write_ms(json, "send_ms", one.prepared_ns, one.sent_ns);
  write_ms(json, "first_token_ms", one.queued_ns, one.first_ns);
  write_ms(json, "total_ms", one.queued_ns, one.ended_ns);
  json.key("tokens").integer(one.n_tokens);
  if (one.sent_ns != 0) {
    json.key("sender").begin_object();
    json.key("cached_tokens").integer(one.n_sender_cached);
    json.key("bytes").integer(one.n_sent_bytes);
    write_ms(json, "queue_ms", 1, 1 + one.send_queue_ns);
    write_ms(json, "prefill_ms", 1, 1 + one.prefill_ns);
    write_ms(json, "put_ms", 1, 1 + one.put_ns);
    json.end_object();
  }
  json.end_object();
}

void write_attempt(api::JsonWriter& json, const AttemptRecord& one, const Ids& ids) {
  json.begin_object().key("choices").begin_array();
  for (int i = 0; i < one.n_choices; ++i) json.integer(one.first_choice + i);
  json.end_array().key("resumed_tokens").integer(one.n_resumed_tokens);
  json.key("plan");
  one.reason ? json.string(plan_name(*one.reason)) : json.null();
  json.key("reason");
  one.reason ? json.string(name(*one.reason)) : json.null();
  json.key("decode");
  write_pick(json, one.decode, ids);
  json.key("prefill");
  write_pick(json, one.prefill, ids);
  json.key("prepared_tokens").integer(one.end);
  json.key("matched_tokens").integer(one.n_matched);
  write_measured(json, one);
  json.key("outcome");
  one.outcome ? json.string(name(*one.outcome)) : json.string("running");
  json.key("detail");
  one.detail.empty() ? json.null() : json.string(one.detail);
  json.end_object();
}

}  // namespace

std::string_view plan_name(PlanReason reason) {
  switch (reason) {
    case PlanReason::kUncached:
      return "disaggregated";
    case PlanReason::kShort:
    case PlanReason::kCached:
    case PlanReason::kNoPrefillEngine:
      return "decode_only";
    case PlanReason::kBothRoles:
      return "both";
  }
  return "";
}

std::string_view name(PlanReason reason) {
  switch (reason) {
    case PlanReason::kUncached:
      return "uncached";
    case PlanReason::kShort:
      return "short";
    case PlanReason::kCached:
      return "cached";
    case PlanReason::kNoPrefillEngine:
      return "no prefill engine";
    case PlanReason::kBothRoles:
      return "both roles";
  }
  return "";
}

std::string_view name(PartOutcome outcome) {
  switch (outcome) {
    case PartOutcome::kFinished:
      return "finished";
    case PartOutcome::kCancelled:
      return "cancelled";
    case PartOutcome::kFailed:
      return "failed";
    case PartOutcome::kGivenUp:
      return "given_up";
    case PartOutcome::kNoRoom:
      return "no_room";
  }
  return "";
}

std::shared_ptr<AttemptRecord> PlanRecord::add_attempt() {
  ++n_attempts;
  if (attempts.size() == kMaxAttempts) attempts.pop_front();
  return attempts.emplace_back(std::make_shared<AttemptRecord>());
}

std::string PlanRecord::json(const Ids& engine_ids) const {
  api::JsonWriter json;
  json.begin_object().key("id").string(label).key("policy").string(policy);
  json.key("prompt_tokens").integer(n_prompt).key("n").integer(n_choices);
  json.key("n_attempts").integer(n_attempts).key("attempts").begin_array();
  for (const auto& attempt : attempts) write_attempt(json, *attempt, engine_ids);
  return json.end_array().end_object().take();
}

std::shared_ptr<PlanRecord> PlanBook::add(std::string label) {
  auto record = std::make_shared<PlanRecord>();
  record->label = std::move(label);
  order_.push_back(record);
  by_label_[record->label] = record;
  while (order_.size() > max_plans_) {
    const auto it = by_label_.find(order_.front()->label);
    if (it != by_label_.end() && it->second == order_.front()) by_label_.erase(it);
    order_.pop_front();
  }
  return record;
}

const PlanRecord* PlanBook::find(const std::string& label) const {
  const auto it = by_label_.find(label);
  return it == by_label_.end() ? nullptr : it->second.get();
}

}  // namespace baton::router
