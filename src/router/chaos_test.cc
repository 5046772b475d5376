// Many requests over engines that refuse, fail, give up, die and come back, and clients that
// cancel: every request ends, every token comes once, nothing is left at any engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "router/core_test_support.h"

namespace baton::router {
namespace {

constexpr int kMaxTokens = 6;

/// What an engine generates is a function of prompt, choice and position alone.
TokenId token_at(const std::vector<TokenId>& prompt, int choice, size_t position) {
  const uint64_t mixed = (uint64_t(prompt[0]) * 7919 + prompt.size() * 104729 +
                          uint64_t(choice) * 1299709 + position * 15485863);
  return static_cast<TokenId>(mixed % 997);
}

/// An engine that is on its own: it knows what it was told and what it holds.
struct StandIn {
  struct Running {
    TokenRequest request;
    std::map<int, std::vector<TokenId>> open;  ///< choices and what they have
    bool prompted = false;
    size_t call = 0;  ///< index of its start_generate
  };
  std::map<RequestId, Running> running;
  std::set<LeaseId> leases;
  size_t n_seen_starts = 0;
  size_t n_seen_cancels = 0;
  size_t n_seen_releases = 0;
};

class Chaos {
 public:
  Chaos(const std::string& roles, uint32_t seed)
      : random_(seed), roles_(roles), c_(roles), engines_(roles.size()) {}

  void run(int n_requests) {
    for (int step = 0; step < 2'000'000; ++step) {
      if (n_added_ < n_requests && chance(40)) submit();
      const int engine = static_cast<int>(random_() % roles_.size());
      act(engine);
      c_.clock.advance(100'000);
      c_.core->tick();
      for (size_t e = 0; e < engines_.size(); ++e) take_orders(static_cast<int>(e));
      if (n_added_ == n_requests && c_.core->n_requests() == 0) break;
    }
    calm_ = true;
    for (int i = 0; i < 10'000; ++i) act(static_cast<int>(random_() % roles_.size()));
    for (size_t e = 0; e < engines_.size(); ++e) take_orders(static_cast<int>(e));
  }

  void check() {
    c_.expect_idle();
    int n_finished = 0;
    for (const auto& [id, request] : requests_) {
      if (cancelled_.contains(id)) continue;
      for (int choice = 0; choice < request.n_choices; ++choice) {
        const ClientOutcome::Choice& got = c_.outcomes[id].choices[choice];
        ASSERT_TRUE(got.finish.has_value()) << "row 20: never completed";
        for (size_t i = 0; i < got.tokens.size(); ++i) {
          ASSERT_EQ(got.tokens[i], token_at(request.prompt, choice, i)) << "position " << i;
        }
        if (*got.finish == FinishReason::kLength) {
          ASSERT_EQ(got.tokens.size(), size_t(kMaxTokens));
          ++n_finished;
        } else {
          ASSERT_EQ(*got.finish, FinishReason::kError);
          ASSERT_EQ(got.code, ErrorCode::kUnavailable) << got.error;
        }
      }
    }
    EXPECT_GT(n_finished, n_added_ / 2);
    for (size_t e = 0; e < engines_.size(); ++e) {
      EXPECT_TRUE(engines_[e].running.empty()) << "engine " << e << " generates for nobody";
      EXPECT_TRUE(engines_[e].leases.empty()) << "engine " << e << " holds a lease for nobody";
    }
  }

  Cluster& cluster() { return c_; }

 private:
  bool chance(uint32_t percent) { return random_() % 100 < percent; }
  /// Per thousand, and never while things calm down.
  bool mishap(uint32_t permille) { return !calm_ && random_() % 1000 < permille; }

  void submit() {
    TokenRequest request = c_.request(chance(40) ? 50 : 200, chance(30) ? 3 : 1, kMaxTokens);
    request.priority = static_cast<int>(random_() % 2);
    requests_[request.id] = request;
    ClientOutcome& outcome = c_.outcomes[request.id];
    ++n_added_;
    c_.core->add(std::move(request),
                 [&outcome](RequestUpdate update) { outcome.take(std::move(update)); });
  }

  void act(int engine) {
    if (!c_.core->engines()[engine].up) {
      if (calm_ || chance(5)) c_.core->on_up(engine, c_.info(engine));
      return;
    }
    if (mishap(2)) return die(engine);
    if (mishap(10)) cancel_some();
    take_orders(engine);
    switch (random_() % 4) {
      case 0:
        return answer_prepare(engine);
      case 1:
        return answer_send(engine);
      default:
        return generate(engine);
    }
  }

  void die(int engine) {
    engines_[static_cast<size_t>(engine)].running.clear();
    engines_[static_cast<size_t>(engine)].leases.clear();
    for (auto& call : c_.link(engine).preps) call.answered = true;
    for (auto& call : c_.link(engine).sends) call.answered = true;
    for (auto& call : c_.link(engine).starts) call.answered = true;
    engines_[static_cast<size_t>(engine)].n_seen_starts = c_.link(engine).starts.size();
    c_.core->on_down(engine, "killed");
  }

  void cancel_some() {
    auto it = requests_.begin();
    std::advance(it, static_cast<ptrdiff_t>(random_() % requests_.size()));
    cancelled_.insert(it->first);
    c_.core->cancel(it->first, std::nullopt);
  }

  template <typename Calls>
  typename Calls::value_type* open_call(Calls& calls) {
    const auto it =
        std::find_if(calls.begin(), calls.end(), [](const auto& call) { return !call.answered; });
    if (it == calls.end()) return nullptr;
    it->answered = true;
    return &*it;
  }

  void answer_prepare(int engine) {
    auto* call = open_call(c_.link(engine).preps);
    if (call == nullptr) return;
    if (mishap(50)) return call->done(fail(ErrorCode::kExhausted, "no room"));
    if (mishap(20)) return call->done(fail(ErrorCode::kInternal, "broken"));
    PreparedReceive answer;
    answer.lease = LeaseId{++n_leases_};
    answer.n_matched = chance(30) ? 160 : chance(50) ? 32 : 0;
    answer.address.blocks.resize(static_cast<size_t>((call->request.end - answer.n_matched) / 16));
    engines_[static_cast<size_t>(engine)].leases.insert(answer.lease);
    call->done(answer);
  }

  void answer_send(int engine) {
    auto* call = open_call(c_.link(engine).sends);
    if (call == nullptr) return;
    if (mishap(30)) return call->done(fail(ErrorCode::kUnavailable, "the put failed"));
    if (mishap(20)) return call->done(fail(ErrorCode::kExhausted, "two are under way"));
    delivered_.insert(call->request.id);
    call->done(SentKv{});
  }

  /// Starts, cancels and releases reach the engine.
  void take_orders(int engine) {
    StandIn& self = engines_[static_cast<size_t>(engine)];
    FakeLink& link = c_.link(engine);
    for (; self.n_seen_starts < link.starts.size(); ++self.n_seen_starts) {
      auto& call = link.starts[self.n_seen_starts];
      if (call.answered) continue;
      call.answered = true;
      const TokenRequest request = call.request;
      if (mishap(20)) {
        call.done(fail(mishap(500) ? ErrorCode::kExhausted : ErrorCode::kInternal, "no"));
        continue;
      }
      if (request.leased) {
        EXPECT_EQ(self.leases.erase(request.leased->lease), 1U) << "not a lease of this engine";
      }
      StandIn::Running& one = self.running[request.id];
      one.request = request;
      for (int i = 0; i < request.n_choices; ++i) {
        one.open[request.first_choice + i] = request.output;
      }
      call.done({});
    }
    for (; self.n_seen_cancels < link.cancels.size(); ++self.n_seen_cancels) {
      const auto& [id, choice] = link.cancels[self.n_seen_cancels];
      const auto it = self.running.find(id);
      if (it == self.running.end()) continue;
      if (choice) it->second.open.erase(*choice);
      if (!choice || it->second.open.empty()) self.running.erase(it);
    }
    for (; self.n_seen_releases < link.releases.size(); ++self.n_seen_releases) {
      self.leases.erase(link.releases[self.n_seen_releases]);
    }
  }

  void generate(int engine) {
    StandIn& self = engines_[static_cast<size_t>(engine)];
    if (self.running.empty()) return;
    auto it = self.running.begin();
    std::advance(it, static_cast<ptrdiff_t>(random_() % self.running.size()));
    StandIn::Running& one = it->second;
    const auto& leased = one.request.leased;
    // [0, end) of a long prompt comes from a sender, who may need long.
    const bool waits = leased && leased->begin == 192 && !delivered_.contains(it->first) &&
                       roles_[static_cast<size_t>(engine)] == 'D';
    RequestUpdate update;
    update.id = it->first;
    const bool gives_up = mishap(30);
    if (waits && !gives_up && !chance(1)) return;  // now and then its answer is the later one
    if (!std::exchange(one.prompted, true)) update.prompt = PromptInfo{};
    auto choice = one.open.begin();
    std::advance(choice, static_cast<ptrdiff_t>(random_() % one.open.size()));
    TokenEvent& event = update.events.emplace_back();
    event.choice = choice->first;
    if (gives_up) {
      event.finish = FinishReason::kGivenUp;
    } else {
      event.tokens = {token_at(one.request.prompt, choice->first, choice->second.size())};
      choice->second.push_back(event.tokens[0]);
      if (choice->second.size() == size_t(kMaxTokens)) event.finish = FinishReason::kLength;
    }
    if (event.finish) one.open.erase(choice);
    if (one.open.empty()) self.running.erase(it);
    c_.core->on_update(engine, std::move(update));
  }

  std::mt19937 random_;
  std::string roles_;
  Cluster c_;
  std::vector<StandIn> engines_;
  std::map<RequestId, TokenRequest> requests_;
  std::set<RequestId> cancelled_;
  std::set<RequestId> delivered_;  ///< sends that have put all
  uint64_t n_leases_ = 0;
  int n_added_ = 0;
  bool calm_ = false;
};

// Row 20: a few of 1,536 requests never complete.
TEST(RouterChaos, Row20_EveryOneOf1536RequestsEnds) {
  Chaos chaos("PPDDDB", 1);
  chaos.run(1536);
  chaos.check();
  EXPECT_GT(chaos.cluster().series("baton_request_retries_total"), 100);
}

TEST(RouterChaos, Row14_20_SmallClusters) {
  for (const char* roles : {"PD", "PDD", "BB", "DB", "PPD"}) {
    SCOPED_TRACE(roles);
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      Chaos chaos(roles, seed);
      chaos.run(150);
      chaos.check();
    }
  }
}

}  // namespace
}  // namespace baton::router
