// Stand-in links and clients for the tests of the router's core.
#pragma once

#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/metrics.h"
#include "router/core.h"
#include "testing/manual_clock.h"

namespace baton::router {

/// Records what it is asked; the test answers.
class FakeLink final : public EngineLink {
 public:
  template <typename Request, typename Answer>
  struct Call {
    Request request;
    Callback<Answer> done;
    bool answered = false;
  };
  using Cancel = std::pair<RequestId, std::optional<int>>;

  void prep_recv(const PrepareReceive& request, Callback<PreparedReceive> done) override {
    preps.push_back({request, std::move(done)});
  }
  void remote_send(const RemoteSend& request, Callback<SentKv> done) override {
    sends.push_back({request, std::move(done)});
  }
  void start_generate(const TokenRequest& request, Callback<void> done) override {
    starts.push_back({request, std::move(done)});
  }
  void cancel(RequestId id, std::optional<int> choice) override {
    cancels.emplace_back(id, choice);
  }
  void release(LeaseId lease) override { releases.push_back(lease); }

  std::deque<Call<PrepareReceive, PreparedReceive>> preps;
  std::deque<Call<RemoteSend, SentKv>> sends;
  std::deque<Call<TokenRequest, void>> starts;
  std::vector<Cancel> cancels;
  std::vector<LeaseId> releases;
};

/// The cancels of all choices of these.
[[nodiscard]] std::vector<FakeLink::Cancel> whole(std::initializer_list<RequestId> ids);

using Tokens = std::vector<TokenId>;

/// What one client got.
struct ClientOutcome {
  struct Choice {
    std::vector<TokenId> tokens;
    std::optional<FinishReason> finish;
    std::string error;
    ErrorCode code = ErrorCode::kInternal;
  };
  std::optional<PromptInfo> prompt;
  std::map<int, Choice> choices;
  /// What must never happen: an event after the last one, a second PromptInfo, tokens before it.
  std::vector<std::string> faults;

  void take(RequestUpdate update);
  [[nodiscard]] int n_finished() const;
};

/// A core over stand-in links. Engines are named by their roles: "PDD" = one prefill engine (index
/// 0) and two decode engines; 'B' = both. All are up.
class Cluster {
 public:
  static constexpr int kVocab = 1000;
  explicit Cluster(const std::string& engines, RouterOptions options = {});

  FakeLink& link(int engine) { return *links_[static_cast<size_t>(engine)]; }
  [[nodiscard]] EngineInfo info(int engine) const;
  void up(int engine) { core->on_up(engine, info(engine)); }
  /// Up again as another process.
  void restart(int engine);
  void down(int engine, const std::string& reason = "killed");
  void advance_ms(int64_t ms);

  /// Submits a prompt of `n_prompt` tokens (all different ones of another call) and ticks.
  RequestId add(int n_prompt, int n_choices = 1, int max_tokens = 8);
  RequestId add(TokenRequest request);
  [[nodiscard]] TokenRequest request(int n_prompt, int n_choices = 1, int max_tokens = 8);
  ClientOutcome& outcome(RequestId id) { return outcomes[id]; }
  void cancel(RequestId id, std::optional<int> choice = std::nullopt);

  // Answers to the latest call of an engine (or call `i`).
  void prepared(int engine, int n_matched = 0, int i = -1);
  void prep_failed(int engine, ErrorCode code, const std::string& message = "no", int i = -1);
  void sent(int engine, int i = -1);
  void send_failed(int engine, ErrorCode code, int i = -1);
  void started(int engine, int i = -1);
  void start_failed(int engine, ErrorCode code, int i = -1);
  /// Tokens for a start of an engine; the first ones come with PromptInfo.
  void tokens(int engine, int choice, std::vector<TokenId> tokens,
              std::optional<FinishReason> finish = std::nullopt, int i = -1);
  void update(int engine, RequestUpdate update);

  /// prep_recv → remote_send → start_generate, all answered, for the latest request.
  void hand_over(int decode, int prefill);

  [[nodiscard]] nlohmann::json plan(RequestId id) const;
  /// The sum of all series of that name whose labels contain `labels`.
  [[nodiscard]] double series(const std::string& name, const std::string& labels = "") const;
  /// Nothing is left: no request, attempt or queue entry, all counters zero.
  void expect_idle() const;

  testing::ManualClock clock;
  MetricsRegistry registry;
  std::vector<HungEngine> hung;  ///< as they were reported
  std::unique_ptr<RouterCore> core;
  std::map<RequestId, ClientOutcome> outcomes;

 private:
  std::string roles_;
  std::vector<uint64_t> incarnations_;
  std::vector<std::unique_ptr<FakeLink>> links_;
  std::set<RequestId> prompted_;  ///< attempts that PromptInfo was sent for
  uint64_t n_requests_ = 0;
  uint64_t n_leases_ = 0;
};

}  // namespace baton::router
