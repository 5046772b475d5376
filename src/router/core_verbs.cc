// The verbs that run an attempt, and the engines' answers to them.
#include <algorithm>
#include <span>
#include <utility>

#include "base/log.h"
#include "router/core.h"

namespace baton::router {

void RouterCore::place(Attempt& attempt, PickRecord pick) {
  const ClientRequest& client = *attempt.client;
  queue_.erase({client.request.priority, client.request.arrival_ns, attempt.id});
  attempt.decode = pick.chosen;
  Engine& engine = engines_[attempt.decode];
  attempt.decode_ticket = LoadTicket(engine.load, attempt.n_choices());
  attempt.record->decode = std::move(pick);
  attempt.record->picked_ns = clock_.now_ns();
  if (trace_ != nullptr) trace_queue(attempt);

  if (engine.info.role == Role::kBoth) {
    return start(attempt, PlanReason::kBothRoles, std::nullopt);
  }
  const int end = planner_.handover_end(client, engine);
  if (end == 0 || !planner_.wants_prefill(client.n_prompt())) {
    return start(attempt, PlanReason::kShort, std::nullopt);
  }
  if (!planner_.any_may_send(attempt, engine)) {
    return start(attempt, PlanReason::kNoPrefillEngine, std::nullopt);
  }
  attempt.end = end;
  attempt.record->end = end;
  prepare(attempt);
}

void RouterCore::trace_queue(const Attempt& attempt) {
  const std::string& label = attempt.client->request.label;
  trace_->add({.name = "queue",
               .begin_ns = attempt.record->queued_ns,
               .end_ns = attempt.record->picked_ns,
               .requests = std::span(&label, 1),
               .n_tokens = attempt.client->n_prompt()});
}

void RouterCore::prepare(Attempt& attempt) {
  attempt.state = AttemptState::kPreparing;
  attempt.preparing_ticket = LoadTicket(preparing_, 0);
  const ClientRequest& client = *attempt.client;
  PrepareReceive request;
  request.prompt = client.request.prompt;
  request.end = attempt.end;
  // Prompt log probabilities need every position computed.
  request.match_prefix = !client.wants_prompt_logprobs();
  request.lease_ns = options_.lease_ns;
  request.label = client.request.label;
  engines_[attempt.decode].link->prep_recv(
      request, [this, id = attempt.id, engine = attempt.decode](Result<PreparedReceive> result) {
        on_prepared(id, engine, std::move(result));
      });
}

void RouterCore::on_prepared(RequestId id, int engine, Result<PreparedReceive> result) {
  Attempt* attempt = find(id);
  if (attempt == nullptr) {
    // It was cancelled meanwhile.
    if (result && engines_[engine].up) engines_[engine].link->release(result->lease);
    return;
  }
  if (attempt->state != AttemptState::kPreparing || attempt->prepared) return;
  if (!result) return on_refused(*attempt, result.error(), RetryReason::kPrepRecv);
  attempt->prepared = std::move(*result);
  attempt->record->prepared_ns = clock_.now_ns();
  if (const std::string fault = fault_of(*attempt, *attempt->prepared); !fault.empty()) {
    return retry(*attempt, {.reason = RetryReason::kCorrupt,
                            .detail = fmt::format("{} answered prep_recv with {}",
                                                  engines_[engine].title(), fault),
                            .failed_engine = engine});
  }
  attempt->record->n_matched = attempt->prepared->n_matched;
  plan_prefill(*attempt);
}

std::string RouterCore::fault_of(const Attempt& attempt, const PreparedReceive& prepared) const {
  const int block = engines_[attempt.decode].info.block_tokens;
  if (prepared.n_matched < 0 || prepared.n_matched > attempt.end ||
      prepared.n_matched % block != 0) {
    return fmt::format("{} matched tokens of {}", prepared.n_matched, attempt.end);
  }
  const int n_blocks = (attempt.end - prepared.n_matched) / block;
  if (prepared.address.blocks.size() != static_cast<size_t>(n_blocks)) {
    return fmt::format("{} blocks where {} were needed", prepared.address.blocks.size(), n_blocks);
  }
  return {};
}

void RouterCore::on_refused(Attempt& attempt, const Error& error, RetryReason reason) {
  const int engine = attempt.decode;
  const std::string detail = fmt::format("{}: {}", engines_[engine].title(), error.message);
  switch (error.code) {
    case ErrorCode::kExhausted:
      put_back(attempt, detail);
      return pause(engine);
    case ErrorCode::kInvalidArgument:
      attempt.lineage.unfit.push_back(engine);
      attempt.lineage.why_unfit = error.message;
      return put_back(attempt, detail);
    default:
      return retry(attempt, {.reason = reason, .detail = detail, .failed_engine = engine});
  }
}

void RouterCore::plan_prefill(Attempt& attempt) {
  const int n_matched = attempt.prepared->n_matched;
  if (n_matched == attempt.end || !planner_.wants_prefill(attempt.client->n_prompt() - n_matched)) {
    return start(attempt, PlanReason::kCached, n_matched);
  }
  Placement placement = planner_.pick_prefill(attempt, clock_.now_ns());
  attempt.record->prefill = placement.pick;
  switch (placement.kind) {
    case Placement::Kind::kPlaced:
      return send(attempt, placement.pick.chosen);
    case Placement::Kind::kPrefillFull:
      // Only when a prefill engine was lost meanwhile: the places were counted before prep_recv.
      return put_back(attempt, "the prefill engines are full");
    default:
      return start(attempt, PlanReason::kNoPrefillEngine, n_matched);
  }
}

void RouterCore::send(Attempt& attempt, int engine) {
  const ClientRequest& client = *attempt.client;
  sends_[attempt.id] = {
      .engine = engine, .ticket = LoadTicket(engines_[engine].load, 0), .record = attempt.record};
  RemoteSend request;
  request.id = attempt.id;
  request.prompt = client.request.prompt;
  request.begin = attempt.prepared->n_matched;
  request.end = attempt.end;
  request.to = attempt.prepared->address;
  if (client.wants_prompt_logprobs()) request.n_prompt_logprobs = client.request.n_prompt_logprobs;
  request.priority = client.request.priority;
  request.arrival_ns = client.request.arrival_ns;
  request.label = client.request.label;
  engines_[engine].link->remote_send(
      request, [this, id = attempt.id](Result<SentKv> result) { on_sent(id, std::move(result)); });
  // At once: the decode engine waits for the signal itself.
  start(attempt, PlanReason::kUncached, attempt.end);
}

void RouterCore::on_sent(RequestId id, Result<SentKv> result) {
  const auto it = sends_.find(id);
  if (it == sends_.end()) return;  // cancelled, or its engine was lost
  Send send = std::move(it->second);
  sends_.erase(it);
  send.ticket = {};  // before the engine may be paused: something ended there
  dirty_ = true;
  const Engine& engine = engines_[send.engine];
  metrics_.part_ended(engine.id, engine.info.role,
                      result                                         ? PartOutcome::kFinished
                      : result.error().code == ErrorCode::kExhausted ? PartOutcome::kNoRoom
                                                                     : PartOutcome::kFailed);
  Attempt* attempt = find(id);
  if (!result) {
    if (attempt != nullptr) on_send_failed(*attempt, send.engine, result.error());
    return;
  }
  AttemptRecord& record = *send.record;
  record.sent_ns = clock_.now_ns();
  record.n_sent_bytes = result->n_bytes;
  record.n_sender_cached = result->n_cached_tokens;
  record.put_ns = result->put_ns;
  record.send_queue_ns = result->queue_ns;
  record.prefill_ns = result->prefill_ns;
  if (attempt == nullptr || !attempt->client->wants_prompt_logprobs()) return;
  if (result->prompt_logprobs.size() != static_cast<size_t>(attempt->end) + 1) {
    return retry(*attempt, {.reason = RetryReason::kCorrupt,
                            .detail = fmt::format("{} sent log probabilities of {} prompt tokens "
                                                  "where {} were asked for",
                                                  engine.title(), result->prompt_logprobs.size(),
                                                  attempt->end + 1),
                            .failed_engine = send.engine,
                            .outcome = PartOutcome::kCancelled});
  }
  attempt->sender_logprobs = std::move(result->prompt_logprobs);
  release_held(id);
}

void RouterCore::release_held(RequestId id) {
  std::vector<RequestUpdate> held = std::exchange(find(id)->held, {});
  for (RequestUpdate& update : held) {
    Attempt* attempt = find(id);
    if (attempt == nullptr) return;
    deliver(*attempt, std::move(update));
  }
}

void RouterCore::on_send_failed(Attempt& attempt, int engine, const Error& error) {
  const std::string detail = fmt::format("{}: {}", engines_[engine].title(), error.message);
  // A token has come, so the KV had arrived: only the answer was lost.
  if (attempt.progressed) return;
  if (error.code == ErrorCode::kExhausted) {
    put_back(attempt, detail);
    return pause(engine);
  }
  const bool up = engines_[engine].up;
  // When an engine dies, its answers often break off before its stream does. A pause tells the two
  // apart: what was lost is waited for, what fails twice while it is up is not asked again.
  std::vector<int>& suspect = attempt.lineage.suspect;
  const bool again = std::find(suspect.begin(), suspect.end(), engine) != suspect.end();
  if (up) {
    suspect.push_back(engine);
    pause(engine);
  }
  retry(attempt, {.reason = up ? RetryReason::kRemoteSend : RetryReason::kEngineDown,
                  .detail = detail,
                  .failed_engine = up && again ? engine : -1,
                  .outcome = PartOutcome::kCancelled});
}

void RouterCore::start(Attempt& attempt, PlanReason reason, std::optional<int> begin) {
  attempt.state = AttemptState::kRunning;
  attempt.preparing_ticket = {};
  dirty_ = true;  // its place at the prefill engines may be another's
  attempt.at_engine = true;
  attempt.record->reason = reason;
  metrics_.planned(reason);
  const ClientRequest& client = *attempt.client;
  spdlog::debug("request {}: {} ({}) on {}, {} prompt tokens", client.plan->label,
                plan_name(reason), name(reason), engines_[attempt.decode].title(),
                client.n_prompt());
  EngineLink& link = *engines_[attempt.decode].link;
  std::optional<LeaseId> lease;
  if (begin) lease = attempt.prepared->lease;
  link.start_generate(request_of(attempt, begin),
                      [this, id = attempt.id, engine = attempt.decode, lease](Status status) {
                        on_started(id, engine, lease, std::move(status));
                      });
  for (int c = attempt.first_choice; c < attempt.first_choice + attempt.n_choices(); ++c) {
    if (!attempt.is_open(c)) link.cancel(attempt.id, c);
  }
}

TokenRequest RouterCore::request_of(const Attempt& attempt, std::optional<int> begin) const {
  const ClientRequest& client = *attempt.client;
  TokenRequest out = client.request;
  out.id = attempt.id;
  out.first_choice = attempt.first_choice;
  out.n_choices = attempt.n_choices();
  if (out.n_choices == 1) {
    out.output = client.choices[static_cast<size_t>(attempt.first_choice)].tokens;
  }
  // Without tokens to generate they are all there is to compute.
  if (client.prompt_sent && out.max_tokens > 0) out.n_prompt_logprobs.reset();
  if (begin) out.leased = {.lease = attempt.prepared->lease, .begin = *begin};
  return out;
}

void RouterCore::on_started(RequestId id, int engine, std::optional<LeaseId> lease, Status status) {
  if (status) return;
  if (lease && engines_[engine].up) engines_[engine].link->release(*lease);
  Attempt* attempt = find(id);
  if (attempt == nullptr || !attempt->at_engine) return;
  attempt->at_engine = false;
  on_refused(*attempt, status.error(), RetryReason::kStartGenerate);
}

}  // namespace baton::router
