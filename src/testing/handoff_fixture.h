// For tests of handoffs: a prefill and a decode core in one symmetric world, and the verbs that a
// router would call. One thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/handoff.h"
#include "testing/core_fixture.h"
#include "testing/fake_world.h"
#include "testing/faulty_heap.h"

namespace baton::testing {

/// An engine in a world: the core, and its heap, which outlives it.
struct Member {
  std::unique_ptr<shmem::Heap> heap;
  std::unique_ptr<FaultyHeap> faulty;  ///< between the two, if there is a script
  std::unique_ptr<CoreFixture> core;
};

struct MemberOptions {
  engine::EngineOptions engine;
  int n_blocks = 1024;
  int n_windows = 64;
  StandInOptions model{};
  Trace* trace = nullptr;
  FaultyHeap::Script script{};
};

inline Member join_world(FakeWorld& world, Pe pe, MemberOptions options) {
  Member member;
  options.engine.kv_bytes = kStandInBlockBytes * static_cast<size_t>(options.n_blocks);
  const kv::KvLayout layout = engine::plan_kv(options.engine, StandInModel()).value();
  member.heap = world.join({.first_pe = pe,
                            .bytes_per_pe = layout.total_bytes(),
                            .member = engine::kv_member(layout, "stand-in", "engine"),
                            .n_windows = options.n_windows});
  shmem::Heap* heap = member.heap.get();
  if (options.script) {
    member.faulty = std::make_unique<FaultyHeap>(*member.heap, std::move(options.script));
    heap = member.faulty.get();
  }
  member.core = std::make_unique<CoreFixture>(options.engine, options.n_blocks, options.model,
                                              CoreExtras{.trace = options.trace, .heap = heap});
  return member;
}

/// The options of every engine of a handoff test: all prompts are of the prefill class.
inline engine::EngineOptions handoff_options(Role role = Role::kBoth) {
  engine::EngineOptions options;
  options.role = role;
  options.prefill_min_tokens = 1;
  options.lease_ns = 1'000'000'000;
  return options;
}

/// A sender that needs several steps for a prompt.
inline MemberOptions slow_prefill() {
  MemberOptions out{handoff_options(Role::kPrefill)};
  out.engine.max_batched_tokens = 128;
  return out;
}

/// What `request` gives on one engine alone.
inline std::vector<TokenId> tokens_alone(const TokenRequest& request) {
  return run_alone(request, handoff_options()).choices[request.first_choice].tokens;
}

inline int whole_blocks(const std::vector<TokenId>& prompt) {
  return static_cast<int>(prompt.size() - 1) / kv::kBlockTokens * kv::kBlockTokens;
}

class HandoffFixture {
 public:
  static constexpr Pe kPrefillPe{0};
  static constexpr Pe kDecodePe{1};

  HandoffFixture()
      : HandoffFixture({handoff_options(Role::kPrefill)}, {handoff_options(Role::kDecode)}) {}
  HandoffFixture(MemberOptions prefill_options, MemberOptions decode_options)
      : model_(decode_options.model),
        n_windows_(decode_options.n_windows),
        prefill_member_(join_world(world, kPrefillPe, std::move(prefill_options))),
        decode_member_(join_world(world, kDecodePe, std::move(decode_options))),
        prefill(*prefill_member_.core),
        decode(*decode_member_.core) {}

  [[nodiscard]] Result<PreparedReceive> prepare(const TokenRequest& request,
                                                std::optional<int> end = std::nullopt) {
    PrepareReceive prepare;
    prepare.prompt = request.prompt;
    prepare.end = end.value_or(whole_blocks(request.prompt));
    prepare.match_prefix = !request.n_prompt_logprobs;
    prepare.label = request.label;
    if (auto status = decode.core->check(prepare); !status) return tl::unexpected(status.error());
    return decode.core->prepare(prepare);
  }
  static RemoteSend make_send(const TokenRequest& request, const PreparedReceive& prepared) {
    RemoteSend send;
    send.prompt = request.prompt;
    send.begin = prepared.n_matched;
    send.end =
        prepared.n_matched + static_cast<int>(prepared.address.blocks.size()) * kv::kBlockTokens;
    send.to = prepared.address;
    send.n_prompt_logprobs = request.n_prompt_logprobs;
    send.priority = request.priority;
    send.label = request.label;
    send.arrival_ns = request.arrival_ns;
    return send;
  }
  /// The id under which sent() has the answer.
  RequestId send(const TokenRequest& request, const PreparedReceive& prepared) {
    RemoteSend send = make_send(request, prepared);
    send.id = RequestId{++n_sends_ + 1'000'000};
    const Status status = prefill.core->check(send);
    BATON_CHECK(status, "{}", status.error().message);
    auto& answer = answers_[send.id];
    prefill.core->add(send, [&answer](Result<SentKv> sent) {
      BATON_CHECK(!answer, "a send is answered once");
      answer = std::move(sent);
    });
    return send.id;
  }
  [[nodiscard]] const std::optional<Result<SentKv>>& answer(RequestId id) { return answers_[id]; }
  [[nodiscard]] bool delivered(RequestId id) { return answers_[id] && answers_[id]->has_value(); }
  /// The decode side takes the lease over, for what was sent up to `begin` (default: all of it).
  RequestId start(TokenRequest request, const PreparedReceive& prepared,
                  std::optional<int> begin = std::nullopt) {
    const int end =
        prepared.n_matched + static_cast<int>(prepared.address.blocks.size()) * kv::kBlockTokens;
    request.leased = {prepared.lease, begin.value_or(end)};
    const Status status = decode.core->check(request);
    BATON_CHECK(status, "{}", status.error().message);
    return decode.add(std::move(request));
  }
  /// All three verbs.
  struct Ids {
    RequestId send;
    RequestId request;
  };
  Ids hand_off(const TokenRequest& request, std::optional<int> end = std::nullopt) {
    const auto prepared = prepare(request, end);
    BATON_CHECK(prepared, "{}", prepared.error().message);
    const RequestId sent = send(request, *prepared);
    return {sent, start(request, *prepared)};
  }

  /// One step of each; whether one of them had something to do.
  bool step() {
    const bool sent = prefill.step();
    const bool decoded = decode.step();
    return sent || decoded;
  }
  void run() {
    for (int n_steps = 0; step(); ++n_steps) BATON_CHECK(n_steps < 100'000, "no end in sight");
  }
  /// Nobody holds anything and the model saw nothing but its own KV; empty if so.
  [[nodiscard]] std::string leftovers() {
    const std::string at_prefill = leftovers(prefill, "prefill");
    return at_prefill.empty() ? leftovers(decode, "decode") : at_prefill;
  }
  [[nodiscard]] static std::string leftovers(const CoreFixture& side, const char* name) {
    const auto stats = side.core->stats();
    if (!side.model.faults().empty()) return fmt::format("{}: {}", name, side.model.faults()[0]);
    const int n_left = stats.blocks.used + stats.blocks.leased + stats.n_leases +
                       stats.n_quarantined + stats.n_running + stats.n_waiting;
    if (n_left == 0) return {};
    return fmt::format("{}: {} used, {} leased, {} leases, {} quarantined, {} running, {} waiting",
                       name, stats.blocks.used, stats.blocks.leased, stats.n_leases,
                       stats.n_quarantined, stats.n_running, stats.n_waiting);
  }
  /// Whether one more request through both is right, and nothing is left of anything; empty if so.
  [[nodiscard]] std::string health(uint32_t seed = 10) {
    const auto request = make_request(random_tokens(300, seed), 20, seed);
    const auto ids = hand_off(request);
    run();
    if (decode.tokens(ids.request) !=
        run_alone(request, handoff_options(), model_).choices[0].tokens)
      return "the next request is wrong";
    if (n_free_windows() != n_windows_) return fmt::format("{} windows free", n_free_windows());
    return leftovers();
  }
  [[nodiscard]] const ChoiceOutcome& choice(RequestId id, int number = 0) {
    return decode.outcomes[id].choices[number];
  }
  /// How many windows the decode engine's heap has free.
  [[nodiscard]] int n_free_windows() {
    std::vector<shmem::Window> windows;
    while (auto window = decode_member_.heap->open_window()) windows.push_back(*window);
    for (const shmem::Window& window : windows) {
      decode_member_.heap->close_window(window);
      decode_member_.heap->free_window(window);
    }
    return static_cast<int>(windows.size());
  }

  /// Kills the prefill engine: its core is not to be stepped any more.
  void kill_prefill() { world.kill(kPrefillPe); }

  FakeWorld world{4};

 private:
  StandInOptions model_;
  int n_windows_;
  Member prefill_member_;
  Member decode_member_;
  std::map<RequestId, std::optional<Result<SentKv>>> answers_;
  uint64_t n_sends_ = 0;

 public:
  CoreFixture& prefill;
  CoreFixture& decode;
};

}  // namespace baton::testing
