#include "router/core.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace baton::router {
namespace {

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

Result<std::unique_ptr<RouterCore>> RouterCore::create(const RouterOptions& options,
                                                       const RouterDeps& deps) {
  auto decode = make_policy(options.policy);
  if (!decode) return tl::unexpected(decode.error());
  auto prefill = make_policy(options.policy);
  if (!prefill) return tl::unexpected(prefill.error());
  return std::unique_ptr<RouterCore>(
      new RouterCore(options, deps, std::move(*decode), std::move(*prefill)));
}

RouterCore::RouterCore(const RouterOptions& options, const RouterDeps& deps,
                       std::unique_ptr<Policy> decode_policy,
                       std::unique_ptr<Policy> prefill_policy)
    : options_(options),
      clock_(deps.clock),
      trace_(deps.trace),
      on_hang_(deps.on_hang),
      planner_(options.planner, engines_, std::move(decode_policy), std::move(prefill_policy)),
      metrics_(deps.metrics),
      plans_(options.max_plans),
      no_engine_since_ns_(deps.clock.now_ns()) {}

int RouterCore::add_engine(std::string id, std::string url, EngineLink& link) {
  return engines_.add(std::move(id), std::move(url), link);
}

void RouterCore::set_supervised(int engine, std::string url, SupervisedState state) {
  engines_[engine].url = std::move(url);
  engines_[engine].supervised = std::move(state);
  note_restarts(engines_[engine]);
  note_hang(engines_[engine]);
}

void RouterCore::note_hang(Engine& engine) {
  if (!engine.hangs()) {
    engine.hung_since_ns.reset();
  } else if (!engine.hung_since_ns) {
    engine.hung_since_ns = clock_.now_ns();
  }
}

void RouterCore::report_hangs() {
  if (options_.hang_timeout_ns == 0 || !on_hang_) return;
  const int64_t now_ns = clock_.now_ns();
  for (int i = 0; i < engines_.size(); ++i) {
    Engine& one = engines_[i];
    if (!one.hung_since_ns || now_ns - *one.hung_since_ns < options_.hang_timeout_ns) continue;
    one.hung_since_ns = now_ns;  // should nothing come of it, it is said again
    on_hang_({one.id, one.supervised.n_restarts, one.last_error});
  }
}

void RouterCore::note_restarts(Engine& engine) {
  const int n_restarts = std::max(engine.n_incarnations - 1, engine.supervised.n_restarts);
  for (; engine.n_restarts < n_restarts; ++engine.n_restarts) metrics_.restarted(engine.id);
}

Status RouterCore::check(const TokenRequest& request) const {
  if (Status ok = check_shape(request); !ok) return ok;
  return check_room(accepts_until_ns(), engines_.missing_for_path(), queue_.size());
}

Status RouterCore::check_shape(const TokenRequest& request) {
  if (request.prompt.empty() || request.n_choices < 1 || request.leased ||
      !request.output.empty() || request.first_choice != 0) {
    return fail(ErrorCode::kInvalidArgument, "not a request that a client may make of a router");
  }
  return {};
}

int64_t RouterCore::accepts_until_ns() const {
  if (!no_engine_since_ns_) return std::numeric_limits<int64_t>::max();
  return engines_.any_generator_seen() ? *no_engine_since_ns_ + options_.path_timeout_ns : 0;
}

Status RouterCore::check_room(int64_t accepts_until_ns, const std::string& missing,
                              size_t n_queued) const {
  if (clock_.now_ns() >= accepts_until_ns) {
    return fail(ErrorCode::kUnavailable, "{}; try again later", missing);
  }
  if (n_queued < static_cast<size_t>(options_.max_queue)) return {};
  auto full = fail(ErrorCode::kExhausted,
                   "the router's queue is full ({} requests wait); try again later", n_queued);
  full.value().retryable = true;
  return full;
}

void RouterCore::add(TokenRequest request, const UpdateSink& sink) {
  const RequestId id = request.id;
  const int n_choices = request.n_choices;
  try {
    accept(std::move(request), sink);
  } catch (const std::exception& e) {
    spdlog::critical("router: request {:016x}: not queued: {}", id.value, e.what());
    clients_.erase(id);
    sink(failed_update(id, 0, n_choices, "internal error: the request could not be queued"));
  }
}

void RouterCore::accept(TokenRequest request, const UpdateSink& sink) {
  const RequestId id = request.id;
  auto client = std::make_unique<ClientRequest>();
  client->choices.resize(static_cast<size_t>(request.n_choices));
  client->plan = plans_.add(request.label);
  client->plan->policy = planner_.policy_name();
  client->plan->n_prompt = static_cast<int>(request.prompt.size());
  client->plan->n_choices = request.n_choices;
  client->plan->arrival_ns = request.arrival_ns;
  client->request = std::move(request);
  client->sink = sink;
  const auto [it, added] = clients_.emplace(id, std::move(client));
  BATON_CHECK(added, "request id {} is in use", id.value);
  enqueue(*it->second, 0, it->second->request.n_choices, {});
}

void RouterCore::cancel(RequestId id, std::optional<int> choice) {
  const auto it = clients_.find(id);
  if (it == clients_.end()) return;
  ClientRequest& client = *it->second;
  const int first = choice.value_or(0);
  const int last = choice.value_or(client.request.n_choices - 1);
  if (first < 0 || last >= client.request.n_choices) return;
  for (int c = first; c <= last; ++c) client.choices[static_cast<size_t>(c)].ended = true;

  const std::set<RequestId> attempts = client.attempts;
  for (const RequestId attempt_id : attempts) {
    Attempt& attempt = *find(attempt_id);
    std::vector<int> closed;
    for (int c = first; c <= last; ++c) {
      if (attempt.is_open(c)) closed.push_back(c);
    }
    if (closed.empty()) continue;
    if (attempt.n_open() == static_cast<int>(closed.size())) {
      end_attempt(attempt, {PartOutcome::kCancelled, "by the client"});
      continue;
    }
    for (const int c : closed) {
      attempt.close(c);
      // Before start_generate is sent no engine knows of choices; start() tells it then.
      if (attempt.state == AttemptState::kRunning) {
        engines_[attempt.decode].link->cancel(attempt.id, c);
      }
    }
  }
  forget_if_ended(client);
}

void RouterCore::end_all(const std::string& message) {
  std::vector<ClientRequest*> open;
  for (const auto& [id, client] : clients_) open.push_back(client.get());
  for (ClientRequest* client : open) fail_request(*client, ErrorCode::kUnavailable, message);
}

void RouterCore::tick() {
  report_hangs();
  expire_path();
  const int64_t now_ns = clock_.now_ns();
  for (int i = 0; i < engines_.size(); ++i) {
    int64_t& until_ns = engines_[i].load.full_until_ns;
    if (until_ns == 0 || until_ns > now_ns) continue;
    until_ns = 0;
    dirty_ = true;
  }
  // Prompts that have waited long enough for a prefill engine are computed where they are decoded.
  const bool awaits = planner_.awaits_prefill_until_ns(now_ns).has_value();
  dirty_ |= awaited_prefill_ && !awaits;
  awaited_prefill_ = awaits;
  // Refused work is back in the queue after a dispatch, with its engine paused: so this ends.
  while (std::exchange(dirty_, false)) dispatch();
  metrics_.queued(queue_.size());
}

std::optional<int64_t> RouterCore::deadline() const {
  if (dirty_) return clock_.now_ns();
  std::optional<int64_t> out;
  const auto wake_at = [&out](int64_t ns) { out = std::min(out.value_or(ns), ns); };
  for (int i = 0; i < engines_.size(); ++i) {
    const auto& since_ns = engines_[i].hung_since_ns;
    if (since_ns && options_.hang_timeout_ns != 0 && on_hang_) {
      wake_at(*since_ns + options_.hang_timeout_ns);
    }
  }
  if (queue_.empty()) return out;
  if (no_engine_since_ns_) wake_at(*no_engine_since_ns_ + options_.path_timeout_ns);
  if (const auto until_ns = planner_.awaits_prefill_until_ns(clock_.now_ns())) wake_at(*until_ns);
  for (int i = 0; i < engines_.size(); ++i) {
    const int64_t until_ns = engines_[i].load.full_until_ns;
    if (until_ns != 0) wake_at(until_ns);
  }
  return out;
}

void RouterCore::on_up(int engine, const EngineInfo& info) {
  Engine& one = engines_[engine];
  if (one.info.incarnation != info.incarnation) {
    ++one.n_incarnations;
    one.hung_since_ns.reset();
  }
  one.up = true;
  one.info = info;
  one.state = {};
  one.load.full_until_ns = 0;
  metrics_.engine(one.id, info.role);
  note_restarts(one);
  spdlog::info("{} is up at {}", one.title(), one.url);
  update_path();
}

void RouterCore::on_down(int engine, const std::string& reason) {
  Engine& one = engines_[engine];
  if (!one.up) {
    one.last_error = reason;
    return;
  }
  if (one.ready()) one.lost_ns = clock_.now_ns();
  one.up = false;
  one.last_error = reason;
  note_hang(one);
  spdlog::warn("{} is down: {}", one.title(), reason);
  update_path();

  plan_again(engine, fmt::format("{} is down: {}", one.title(), reason));
}

void RouterCore::plan_again(int engine, const std::string& why) {
  // In order of age, so that the same run always goes the same way.
  std::set<RequestId> generating;
  std::set<RequestId> sending;
  for (const auto& [id, attempt] : attempts_) {
    if (attempt->decode == engine) generating.insert(id);
  }
  for (const auto& [id, send] : sends_) {
    if (send.engine == engine) sending.insert(id);
  }
  for (const RequestId id : generating) {
    Attempt* attempt = find(id);
    if (attempt == nullptr) continue;  // its request has ended with another of its attempts
    retry(*attempt, {RetryReason::kEngineDown, why});
  }
  for (const RequestId id : sending) {
    Attempt* attempt = find(id);
    if (!engines_[engine].up) {
      on_sent(id, fail(ErrorCode::kUnavailable, "{}", why));
    } else if (attempt != nullptr && !attempt->progressed) {
      retry(
          *attempt,
          {.reason = RetryReason::kEngineDown, .detail = why, .outcome = PartOutcome::kCancelled});
    }
  }
}

void RouterCore::on_state(int engine, const EngineState& state) {
  Engine& one = engines_[engine];
  const bool was_ready = one.ready();
  const bool got_stuck = one.state.alive && !state.alive;
  one.state = state;
  if (!state.reason.empty()) one.last_error = state.reason;
  note_hang(one);
  if (was_ready != one.ready()) {
    if (was_ready) one.lost_ns = clock_.now_ns();
    update_path();
  }
  if (one.up && got_stuck) {
    spdlog::warn("{} is stuck: {}", one.title(), one.last_error);
    plan_again(engine, fmt::format("{} is stuck: {}", one.title(), one.last_error));
  }
}

std::optional<std::string> RouterCore::plan_json(const std::string& label) const {
  const PlanRecord* plan = plans_.find(label);
  if (plan == nullptr) return std::nullopt;
  return plan->json(engine_ids());
}

std::vector<std::string> RouterCore::engine_ids() const {
  std::vector<std::string> out;
  for (int i = 0; i < engines_.size(); ++i) out.push_back(engines_[i].id);
  return out;
}

void RouterCore::enqueue(ClientRequest& client, int first_choice, int n_choices, Lineage lineage) {
  auto attempt = std::make_unique<Attempt>();
  attempt->id = RequestId{++n_attempt_ids_};
  attempt->client = &client;
  attempt->first_choice = first_choice;
  for (int c = first_choice; c < first_choice + n_choices; ++c) {
    attempt->open.push_back(!client.choices[static_cast<size_t>(c)].ended);
  }
  attempt->lineage = std::move(lineage);
  attempt->record = client.plan->add_attempt();
  AttemptRecord& record = *attempt->record;
  record.first_choice = first_choice;
  record.n_choices = n_choices;
  record.n_resumed_tokens =
      static_cast<int>(client.choices[static_cast<size_t>(first_choice)].tokens.size());
  record.queued_ns = clock_.now_ns();
  const RequestId id = attempt->id;
  attempts_.emplace(id, std::move(attempt));
  try {
    client.attempts.insert(id);
    queue_.insert({client.request.priority, client.request.arrival_ns, id});
  } catch (...) {
    client.attempts.erase(id);
    attempts_.erase(id);
    throw;
  }
  dirty_ = true;
}

void RouterCore::dispatch() {
  for (auto it = queue_.begin(); it != queue_.end();) {
    Attempt& attempt = *find(it->id);
    ++it;  // the attempt may leave the queue
    if (!try_place(attempt)) break;
  }
}

bool RouterCore::try_place(Attempt& attempt) {
  const int64_t begin_ns = clock_.now_ns();
  Placement placement = planner_.pick_decode(attempt, preparing_.n_requests, begin_ns);
  switch (placement.kind) {
    case Placement::Kind::kPlaced:
      metrics_.decided(seconds(clock_.now_ns() - begin_ns));
      place(attempt, std::move(placement.pick));
      return true;
    case Placement::Kind::kPrefillFull:
      return true;
    case Placement::Kind::kDecodeFull:
      // One that is kept away from some engine must not keep others from it.
      return !attempt.lineage.failed.empty() || !attempt.lineage.unfit.empty();
    case Placement::Kind::kUnfit:
      fail_request(*attempt.client, ErrorCode::kInvalidArgument, attempt.lineage.why_unfit);
      // Attempts of the same request have left the queue too: begin again.
      dirty_ = true;
      return false;
    case Placement::Kind::kNobody:
      return false;
  }
  return false;
}

void RouterCore::pause(int engine) {
  engines_[engine].load.full_until_ns = clock_.now_ns() + options_.full_pause_ns;
}

void RouterCore::update_path() {
  if (engines_.any_can_decode()) {
    no_engine_since_ns_.reset();
  } else if (!no_engine_since_ns_) {
    no_engine_since_ns_ = clock_.now_ns();
  }
  dirty_ = true;
}

void RouterCore::expire_path() {
  if (!no_engine_since_ns_ || queue_.empty()) return;
  const int64_t waited_ns = clock_.now_ns() - *no_engine_since_ns_;
  if (waited_ns < options_.path_timeout_ns) return;
  while (!queue_.empty()) {
    fail_request(*find(queue_.begin()->id)->client, ErrorCode::kUnavailable,
                 fmt::format("no engine that could generate came back within {} s",
                             waited_ns / 1'000'000'000));
  }
}

Attempt* RouterCore::find(RequestId id) {
  const auto it = attempts_.find(id);
  return it == attempts_.end() ? nullptr : it->second.get();
}

}  // namespace baton::router
