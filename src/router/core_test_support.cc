#include "router/core_test_support.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/log.h"

namespace baton::router {
namespace {

constexpr int kBlock = 16;

template <typename Calls>
auto& pick(Calls& calls, int i) {
  EXPECT_FALSE(calls.empty());
  auto& call = i < 0 ? calls.back() : calls[static_cast<size_t>(i)];
  EXPECT_FALSE(call.answered) << "answered twice";
  call.answered = true;
  return call;
}

}  // namespace

std::vector<FakeLink::Cancel> whole(std::initializer_list<RequestId> ids) {
  std::vector<FakeLink::Cancel> out;
  for (const RequestId id : ids) out.emplace_back(id, std::nullopt);
  return out;
}

void ClientOutcome::take(RequestUpdate update) {
  if (update.prompt) {
    if (prompt) faults.emplace_back("a second PromptInfo");
    prompt = std::move(update.prompt);
  }
  for (TokenEvent& event : update.events) {
    Choice& choice = choices[event.choice];
    if (choice.finish) faults.emplace_back("an event after the last one");
    if (!prompt && !event.tokens.empty()) faults.emplace_back("tokens before PromptInfo");
    choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
    if (event.finish) choice.finish = event.finish;
    if (event.finish == FinishReason::kGivenUp) faults.emplace_back("kGivenUp reached a client");
    choice.error += event.error;
    choice.code = event.code;
  }
}

int ClientOutcome::n_finished() const {
  int n = 0;
  for (const auto& [index, choice] : choices) n += choice.finish ? 1 : 0;
  return n;
}

Cluster::Cluster(const std::string& engines, RouterOptions options) : roles_(engines) {
  spdlog::set_level(spdlog::level::off);
  core = RouterCore::create(options,
                            {.clock = clock,
                             .metrics = registry,
                             .trace = nullptr,
                             .on_hang = [this](const HungEngine& one) { hung.push_back(one); }})
             .value();
  incarnations_.assign(roles_.size(), 1);
  for (size_t i = 0; i < roles_.size(); ++i) {
    links_.push_back(std::make_unique<FakeLink>());
    core->add_engine(std::to_string(i), "http://127.0.0.1:" + std::to_string(9000 + i),
                     *links_.back());
    up(static_cast<int>(i));
  }
  core->tick();
}

EngineInfo Cluster::info(int engine) const {
  const char role = roles_[static_cast<size_t>(engine)];
  EngineInfo out;
  out.role = role == 'P' ? Role::kPrefill : role == 'D' ? Role::kDecode : Role::kBoth;
  out.incarnation = incarnations_[static_cast<size_t>(engine)];
  out.pid = 100 + engine;
  out.cpus = {engine};
  out.context_tokens = 4096;
  out.n_vocab = kVocab;
  out.n_blocks = 1000;
  out.block_tokens = kBlock;
  out.max_batch = 64;
  out.prefill_min_tokens = 128;
  out.layout_hash = 77;
  out.in_world = true;
  return out;
}

void Cluster::restart(int engine) {
  ++incarnations_[static_cast<size_t>(engine)];
  up(engine);
  core->tick();
}

void Cluster::down(int engine, const std::string& reason) {
  core->on_down(engine, reason);
  core->tick();
}

void Cluster::advance_ms(int64_t ms) {
  clock.advance(ms * 1'000'000);
  core->tick();
}

TokenRequest Cluster::request(int n_prompt, int n_choices, int max_tokens) {
  TokenRequest out;
  out.id = RequestId{1'000'000 + ++n_requests_};
  for (int i = 0; i < n_prompt; ++i) {
    out.prompt.push_back(static_cast<TokenId>((n_requests_ * 31 + static_cast<uint64_t>(i)) % 900));
  }
  out.n_choices = n_choices;
  out.max_tokens = max_tokens;
  out.arrival_ns = clock.now_ns();
  out.label = "cmpl-" + std::to_string(out.id.value);
  return out;
}

RequestId Cluster::add(int n_prompt, int n_choices, int max_tokens) {
  return add(request(n_prompt, n_choices, max_tokens));
}

RequestId Cluster::add(TokenRequest request) {
  const RequestId id = request.id;
  ClientOutcome& outcome = outcomes[id];
  core->add(std::move(request),
            [&outcome](RequestUpdate update) { outcome.take(std::move(update)); });
  core->tick();
  return id;
}

void Cluster::cancel(RequestId id, std::optional<int> choice) {
  core->cancel(id, choice);
  core->tick();
}

void Cluster::prepared(int engine, int n_matched, int i) {
  auto& call = pick(link(engine).preps, i);
  PreparedReceive answer;
  answer.lease = LeaseId{++n_leases_};
  answer.n_matched = n_matched;
  answer.address.incarnation = incarnations_[static_cast<size_t>(engine)];
  answer.address.layout_hash = 77;
  answer.address.blocks.resize(static_cast<size_t>((call.request.end - n_matched) / kBlock));
  call.done(std::move(answer));
  core->tick();
}

void Cluster::prep_failed(int engine, ErrorCode code, const std::string& message, int i) {
  pick(link(engine).preps, i).done(fail(code, "{}", message));
  core->tick();
}

void Cluster::sent(int engine, int i) {
  auto& call = pick(link(engine).sends, i);
  SentKv answer;
  answer.n_bytes = 4096;
  answer.put_ns = 1'000'000;
  if (call.request.n_prompt_logprobs) {
    for (int t = 0; t <= call.request.end; ++t) {
      answer.prompt_logprobs.push_back({.logprob = -static_cast<float>(t), .top = {}});
    }
  }
  call.done(std::move(answer));
  core->tick();
}

void Cluster::send_failed(int engine, ErrorCode code, int i) {
  pick(link(engine).sends, i).done(fail(code, "the put failed"));
  core->tick();
}

void Cluster::started(int engine, int i) {
  pick(link(engine).starts, i).done({});
  core->tick();
}

void Cluster::start_failed(int engine, ErrorCode code, int i) {
  pick(link(engine).starts, i).done(fail(code, "no place"));
  core->tick();
}

void Cluster::tokens(int engine, int choice, std::vector<TokenId> tokens,
                     std::optional<FinishReason> finish, int i) {
  const auto& starts = link(engine).starts;
  const TokenRequest& request =
      i < 0 ? starts.back().request : starts[static_cast<size_t>(i)].request;
  RequestUpdate out;
  out.id = request.id;
  if (prompted_.insert(request.id).second) {
    out.prompt = PromptInfo{};
    out.prompt->n_prompt_tokens = static_cast<int>(request.prompt.size());
    if (request.n_prompt_logprobs) {
      const size_t first =
          request.leased && request.leased->begin > 0 ? request.leased->begin + 1 : 0;
      for (size_t t = first; t < request.prompt.size(); ++t) {
        out.prompt->prompt_logprobs.push_back({.logprob = -static_cast<float>(t), .top = {}});
      }
    }
  }
  TokenEvent& event = out.events.emplace_back();
  event.choice = choice;
  event.tokens = std::move(tokens);
  if (request.n_logprobs) event.logprobs.resize(event.tokens.size());
  event.finish = finish;
  update(engine, std::move(out));
}

void Cluster::update(int engine, RequestUpdate update) {
  core->on_update(engine, std::move(update));
  core->tick();
}

void Cluster::hand_over(int decode, int prefill) {
  prepared(decode);
  started(decode);
  sent(prefill);
}

nlohmann::json Cluster::plan(RequestId id) const {
  const auto text = core->plan_json("cmpl-" + std::to_string(id.value));
  EXPECT_TRUE(text.has_value());
  return text ? nlohmann::json::parse(*text) : nlohmann::json();
}

double Cluster::series(const std::string& name, const std::string& labels) const {
  std::istringstream lines(registry.text());
  double sum = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + "{") && !line.starts_with(name + " ")) continue;
    if (line.find(labels) == line.npos) continue;
    sum += std::stod(line.substr(line.rfind(' ') + 1));
  }
  return sum;
}

void Cluster::expect_idle() const {
  EXPECT_EQ(core->n_requests(), 0U);
  EXPECT_EQ(core->n_attempts(), 0U);
  EXPECT_EQ(core->n_queued(), 0U);
  for (int i = 0; i < core->engines().size(); ++i) {
    EXPECT_EQ(core->engines()[i].load.n_requests, 0) << "engine " << i;
    EXPECT_EQ(core->engines()[i].load.n_choices, 0) << "engine " << i;
  }
  for (const auto& [id, outcome] : outcomes) {
    for (const std::string& fault : outcome.faults) ADD_FAILURE() << fault;
  }
}

}  // namespace baton::router
