// What the engines generate on its way to the clients, and the ways an attempt can end.
#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "router/core.h"

namespace baton::router {
namespace {

bool gives_up(const RequestUpdate& update) {
  return std::any_of(update.events.begin(), update.events.end(), [](const TokenEvent& event) {
    return event.finish == FinishReason::kGivenUp || event.finish == FinishReason::kCancelled;
  });
}

/// Adds the decode engine's log probabilities to those of the prefill engine: entries (end, n), or
/// all n of which only these count. False: as many as can't be.
bool join(std::vector<LogprobEntry>& sender, std::vector<LogprobEntry> own, size_t n_prompt) {
  if (sender.empty()) {
    sender = std::move(own);
    return sender.size() == n_prompt;
  }
  if (own.size() == n_prompt) {
    own.erase(own.begin(), own.begin() + static_cast<ptrdiff_t>(sender.size()));
  }
  if (sender.size() + own.size() != n_prompt) return false;
  std::move(own.begin(), own.end(), std::back_inserter(sender));
  return true;
}

}  // namespace

void RouterCore::on_update(int engine, RequestUpdate update) {
  Attempt* attempt = find(update.id);
  if (attempt == nullptr || attempt->decode != engine || !attempt->at_engine) {
    return spdlog::debug("{}: an update for attempt {}, which it doesn't run",
                         engines_[engine].title(), update.id.value);
  }
  if (!attempt->client->wants_prompt_logprobs() || !sends_.contains(attempt->id)) {
    return deliver(*attempt, std::move(update));
  }
  // The prefill engine's answer, with the log probabilities that go out first, is still to come.
  if (!gives_up(update)) {
    attempt->held.push_back(std::move(update));
    return;
  }
  retry(*attempt, {.reason = RetryReason::kGivenUp,
                   .detail = "given up before its prompt's log probabilities had come",
                   .outcome = PartOutcome::kGivenUp});
}

void RouterCore::deliver(Attempt& attempt, RequestUpdate update) {
  ClientRequest& client = *attempt.client;
  Delivery delivery;
  delivery.out.id = client.request.id;
  if (update.prompt && !client.prompt_sent) {
    take_prompt(attempt, std::move(*update.prompt), delivery);
  }
  for (TokenEvent& event : update.events) {
    if (!delivery.fault.empty()) break;
    take_event(attempt, std::move(event), delivery);
  }
  client.prompt_sent |= delivery.out.prompt.has_value();
  if (delivery.out.prompt || !delivery.out.events.empty()) client.sink(std::move(delivery.out));
  settle(attempt, delivery);
}

void RouterCore::take_prompt(Attempt& attempt, PromptInfo info, Delivery& delivery) const {
  const ClientRequest& client = *attempt.client;
  const size_t n_prompt = client.request.prompt.size();
  info.n_prompt_tokens = client.n_prompt();
  info.n_cached_tokens = attempt.prepared ? attempt.prepared->n_matched
                                          : std::clamp(info.n_cached_tokens, 0, client.n_prompt());
  if (client.request.n_prompt_logprobs) {
    if (!join(attempt.sender_logprobs, std::move(info.prompt_logprobs), n_prompt)) {
      delivery.fault = "a wrong number of prompt log probabilities";
      return;
    }
    info.prompt_logprobs = std::move(attempt.sender_logprobs);
  } else {
    info.prompt_logprobs.clear();
  }
  delivery.out.prompt = std::move(info);
}

std::string RouterCore::fault_of(const Attempt& attempt, const TokenEvent& event) const {
  const ClientRequest& client = *attempt.client;
  const ClientChoice& choice = client.choices[static_cast<size_t>(event.choice)];
  const int n_vocab = engines_[attempt.decode].info.n_vocab;
  for (const TokenId id : event.tokens) {
    if (id < 0 || id >= n_vocab) return fmt::format("token {} of a vocabulary of {}", id, n_vocab);
  }
  const size_t n_logprobs = client.request.n_logprobs ? event.tokens.size() : 0;
  if (event.logprobs.size() != n_logprobs) {
    return fmt::format("{} log probabilities where {} were asked for", event.logprobs.size(),
                       n_logprobs);
  }
  if (choice.tokens.size() + event.tokens.size() > static_cast<size_t>(client.request.max_tokens)) {
    return fmt::format("more than max_tokens ({}) tokens", client.request.max_tokens);
  }
  return {};
}

void RouterCore::take_event(Attempt& attempt, TokenEvent event, Delivery& delivery) const {
  // Cancelled or finished: what an engine sent before it knew, or what it should not have sent.
  if (!attempt.is_open(event.choice)) return;
  ClientRequest& client = *attempt.client;
  const bool failed = event.finish && *event.finish != FinishReason::kStop &&
                      *event.finish != FinishReason::kLength;
  delivery.fault = fault_of(attempt, event);
  const bool says_something = !event.tokens.empty() || (event.finish && !failed);
  if (delivery.fault.empty() && says_something && !client.prompt_sent && !delivery.out.prompt) {
    delivery.fault = "tokens before what goes with the prompt";
  }
  if (!delivery.fault.empty()) return;

  ClientChoice& choice = client.choices[static_cast<size_t>(event.choice)];
  choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
  if (!event.tokens.empty()) {
    AttemptRecord& record = *attempt.record;
    attempt.progressed = true;
    record.n_tokens += static_cast<int>(event.tokens.size());
    if (record.first_ns == 0) record.first_ns = clock_.now_ns();
  }
  if (event.finish == FinishReason::kGivenUp || event.finish == FinishReason::kCancelled) {
    delivery.given_up.push_back(event.choice);
    delivery.no_room |= event.code == ErrorCode::kExhausted;
    delivery.why = event.error.empty() ? "given up by the engine" : event.error;
    event.finish.reset();
    event.error.clear();
    if (event.tokens.empty()) return;
  } else if (event.finish) {
    choice.ended = true;
    attempt.close(event.choice);
  }
  delivery.out.events.push_back(std::move(event));
}

void RouterCore::settle(Attempt& attempt, const Delivery& delivery) {
  ClientRequest& client = *attempt.client;
  const int engine = attempt.decode;
  if (!delivery.fault.empty()) {
    // What was given up in the same update goes on with the rest.
    return retry(attempt,
                 {.reason = RetryReason::kCorrupt,
                  .detail = fmt::format("{} sent {}", engines_[engine].title(), delivery.fault),
                  .failed_engine = engine});
  }
  if (!delivery.given_up.empty()) {
    const std::string detail = fmt::format("{}: {}", engines_[engine].title(), delivery.why);
    if (static_cast<int>(delivery.given_up.size()) == attempt.n_open()) {
      attempt.at_engine = false;
      retry(attempt, {.reason = RetryReason::kGivenUp,
                      .detail = detail,
                      .counts = !attempt.progressed && !delivery.no_room,
                      .outcome = PartOutcome::kGivenUp});
      return pause(engine);
    }
    // The others stay where they are.
    Lineage lineage = attempt.lineage;
    if (!attempt.progressed && !delivery.no_room) ++lineage.n_failures;
    for (const int c : delivery.given_up) {
      attempt.close(c);
      metrics_.retried(RetryReason::kGivenUp);
    }
    go_on(client, delivery.given_up, lineage);
    return pause(engine);
  }
  if (attempt.n_open() == 0) end_attempt(attempt, {PartOutcome::kFinished});
  forget_if_ended(client);
}

void RouterCore::retry(Attempt& attempt, const Retry& why) {
  ClientRequest& client = *attempt.client;
  Lineage lineage = attempt.lineage;
  if (why.counts) ++lineage.n_failures;
  if (why.failed_engine >= 0) lineage.failed.push_back(why.failed_engine);
  std::vector<int> choices;
  for (int c = attempt.first_choice; c < attempt.first_choice + attempt.n_choices(); ++c) {
    if (attempt.is_open(c)) choices.push_back(c);
  }
  metrics_.retried(why.reason);
  spdlog::info("request {}: {} again: {}", client.plan->label,
               lineage.n_failures < options_.max_failures ? "planned" : "not planned", why.detail);
  end_attempt(attempt, {why.outcome, why.detail});
  if (lineage.n_failures >= options_.max_failures) {
    return fail_request(client, ErrorCode::kUnavailable,
                        fmt::format("given up after {} failures of engines; the last one: {}",
                                    lineage.n_failures, why.detail));
  }
  go_on(client, choices, lineage);
}

// Memory ran out: a client that nobody works for must not wait for ever.
void RouterCore::fail_unplanned(ClientRequest& client, const std::exception& e) {
  spdlog::critical("request {}: not planned again: {}", client.plan->label, e.what());
  fail_request(client, ErrorCode::kInternal, "internal error: the request could not be queued");
}

void RouterCore::go_on(ClientRequest& client, const std::vector<int>& choices,
                       const Lineage& lineage) {
  try {
    enqueue_again(client, choices, lineage);
  } catch (const std::exception& e) {
    fail_unplanned(client, e);
    return;
  }
  forget_if_ended(client);
}

void RouterCore::enqueue_again(ClientRequest& client, const std::vector<int>& choices,
                               const Lineage& lineage) {
  const int n_choices = client.request.n_choices;
  if (client.untouched() && static_cast<int>(choices.size()) == n_choices) {
    return enqueue(client, 0, n_choices, lineage);
  }
  for (const int c : choices) {
    ClientChoice& choice = client.choices[static_cast<size_t>(c)];
    const int max_tokens = client.request.max_tokens;
    if (max_tokens == 0 || static_cast<int>(choice.tokens.size()) < max_tokens) {
      enqueue(client, c, 1, lineage);
      continue;
    }
    // Lost between its last token and the word that it was the last.
    RequestUpdate last;
    last.id = client.request.id;
    last.events.resize(1);
    last.events[0].choice = c;
    last.events[0].finish = FinishReason::kLength;
    choice.ended = true;
    client.sink(std::move(last));
  }
}

void RouterCore::put_back(Attempt& attempt, const std::string& detail) {
  ClientRequest& client = *attempt.client;
  const int first_choice = attempt.first_choice;
  const int n_choices = attempt.n_choices();
  Lineage lineage = attempt.lineage;
  end_attempt(attempt, {PartOutcome::kNoRoom, detail});
  try {
    enqueue(client, first_choice, n_choices, std::move(lineage));
  } catch (const std::exception& e) {
    fail_unplanned(client, e);
  }
}

void RouterCore::end_attempt(Attempt& attempt, const Ending& ending) {
  ClientRequest& client = *attempt.client;
  const RequestId id = attempt.id;
  queue_.erase({client.request.priority, client.request.arrival_ns, id});
  if (attempt.decode >= 0) {
    const Engine& engine = engines_[attempt.decode];
    // A lease is the attempt's until start_generate hands it back to the engine. One that is still
    // on its way is released when it comes.
    const bool has_lease = attempt.state == AttemptState::kPreparing && attempt.prepared;
    if (has_lease && engine.up) engine.link->release(attempt.prepared->lease);
    if (attempt.at_engine && attempt.n_open() > 0 && engine.up) {
      engine.link->cancel(id, std::nullopt);
    }
    metrics_.part_ended(engine.id, engine.info.role, ending.outcome);
  }
  if (ending.outcome != PartOutcome::kFinished) end_send(id, ending.detail);
  attempt.record->outcome = ending.outcome;
  attempt.record->detail = ending.detail;
  attempt.record->ended_ns = clock_.now_ns();
  client.attempts.erase(id);
  attempts_.erase(id);
  dirty_ = true;
}

void RouterCore::end_send(RequestId id, const std::string& detail) {
  const auto it = sends_.find(id);
  if (it == sends_.end()) return;
  const Engine& engine = engines_[it->second.engine];
  if (engine.up) engine.link->cancel(id, std::nullopt);
  metrics_.part_ended(engine.id, engine.info.role, PartOutcome::kCancelled);
  spdlog::debug("{}: a send was cancelled: {}", engine.title(), detail);
  sends_.erase(it);
}

void RouterCore::fail_request(ClientRequest& client, ErrorCode code, const std::string& message) {
  RequestUpdate out;
  out.id = client.request.id;
  for (size_t c = 0; c < client.choices.size(); ++c) {
    if (std::exchange(client.choices[c].ended, true)) continue;
    TokenEvent& event = out.events.emplace_back();
    event.choice = static_cast<int>(c);
    event.finish = FinishReason::kError;
    event.error = message;
    event.code = code;
  }
  const std::set<RequestId> attempts = client.attempts;
  for (const RequestId id : attempts) end_attempt(*find(id), {PartOutcome::kFailed, message});
  if (!out.events.empty()) client.sink(std::move(out));
  forget_if_ended(client);
}

void RouterCore::forget_if_ended(ClientRequest& client) {
  if (!client.ended() || !client.attempts.empty()) return;
  if (spdlog::should_log(spdlog::level::debug)) {
    spdlog::debug("plan {}", client.plan->json(engine_ids()));
  }
  clients_.erase(client.request.id);
}

}  // namespace baton::router
