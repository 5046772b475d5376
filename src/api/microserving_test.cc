// Every message there and back: equal to the last bit.
#include "api/microserving.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <tuple>

#include "api/json_writer.h"

namespace baton::api {
namespace {

constexpr int kVocab = 50'000;
constexpr WireLimits kLimits{.n_vocab = kVocab, .context_tokens = 4096, .block_tokens = 16};
constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

/// Random values of every kind; all floats are likely to need all their digits.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t any() { return engine_(); }
  int below(int n) { return static_cast<int>(engine_() % static_cast<uint64_t>(n)); }
  bool coin() { return below(2) == 0; }
  float unit() { return std::ldexp(static_cast<float>(below(1 << 24)), -24); }
  float logprob() {
    const int kind = below(20);
    if (kind == 0) return -std::numeric_limits<float>::infinity();
    if (kind == 1) return -0.0F;
    return std::log(unit() + 1e-12F);
  }
  std::vector<TokenId> ids(int n) {
    std::vector<TokenId> out;
    for (int i = 0; i < n; ++i) out.push_back(below(kVocab));
    return out;
  }
  std::vector<LogprobEntry> logprobs(int n) {
    std::vector<LogprobEntry> out;
    for (int i = 0; i < n; ++i) {
      LogprobEntry entry{.logprob = logprob(), .top = {}};
      for (int k = below(4); k > 0; --k) entry.top.push_back({below(kVocab), logprob()});
      out.push_back(std::move(entry));
    }
    return out;
  }
  KvAddress address(int n_blocks) {
    KvAddress out{.pe = Pe{below(8)},
                  .incarnation = any(),
                  .layout_hash = any(),
                  .window_slot = below(64),
                  .window_tag = any(),
                  .blocks = {}};
    for (int i = 0; i < n_blocks; ++i) out.blocks.push_back(BlockId{below(1 << 20)});
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

void expect_same(const std::vector<LogprobEntry>& a, const std::vector<LogprobEntry>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(bits(a[i].logprob), bits(b[i].logprob));
    ASSERT_EQ(a[i].top.size(), b[i].top.size());
    for (size_t k = 0; k < a[i].top.size(); ++k) {
      EXPECT_EQ(a[i].top[k].id, b[i].top[k].id);
      EXPECT_EQ(bits(a[i].top[k].logprob), bits(b[i].top[k].logprob));
    }
  }
}

auto as_tuple(const KvAddress& a) {
  return std::tie(a.pe, a.incarnation, a.layout_hash, a.window_slot, a.window_tag, a.blocks);
}

auto as_tuple(const EngineInfo& a) {
  return std::tie(a.role, a.incarnation, a.pid, a.cpus, a.context_tokens, a.n_vocab, a.n_blocks,
                  a.block_tokens, a.max_batch, a.prefill_min_tokens, a.layout_hash, a.in_world);
}

auto as_tuple(const EngineState& a) {
  return std::tie(a.alive, a.ready, a.reason, a.n_running, a.n_waiting, a.blocks_free,
                  a.blocks_used, a.blocks_cached, a.blocks_leased);
}

TEST(Microserving, PrepareReceiveThereAndBack) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    InSession<PrepareReceive> sent{random.coin() ? "00c0ffee" : "", {}};
    sent.message.prompt = random.ids(17 + random.below(1000));
    sent.message.end = (static_cast<int>(sent.message.prompt.size()) - 1) / 16 * 16;
    sent.message.match_prefix = random.coin();
    sent.message.lease_ns = random.coin() ? 0 : random.below(1'000'000'000);
    sent.message.label = random.coin() ? "" : "cmpl-0a-1";
    const auto got = read_prep_recv(write_prep_recv(sent), kLimits);
    ASSERT_TRUE(got.has_value()) << got.error().message;
    EXPECT_EQ(got->session, sent.session);
    EXPECT_EQ(got->message.prompt, sent.message.prompt);
    EXPECT_EQ(got->message.end, sent.message.end);
    EXPECT_EQ(got->message.match_prefix, sent.message.match_prefix);
    EXPECT_EQ(got->message.lease_ns, sent.message.lease_ns);
    EXPECT_EQ(got->message.label, sent.message.label);
  }
}

TEST(Microserving, RemoteSendThereAndBack) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    InSession<RemoteSend> sent{random.coin() ? "00c0ffee" : "", {}};
    RemoteSend& m = sent.message;
    m.id = RequestId{seed == 0 ? kMax : random.any()};
    m.prompt = random.ids(17 + random.below(1000));
    m.end = (static_cast<int>(m.prompt.size()) - 1) / 16 * 16;
    m.begin = random.below(m.end / 16) * 16;
    m.to = random.address((m.end - m.begin) / 16);
    if (random.coin()) m.n_prompt_logprobs = random.below(21);
    m.priority = random.below(100) - 50;
    m.arrival_ns = static_cast<int64_t>(random.any() >> 1);
    m.label = random.coin() ? "" : "cmpl-0a-1";
    const auto got = read_remote_send(write_remote_send(sent), kLimits);
    ASSERT_TRUE(got.has_value()) << got.error().message;
    const RemoteSend& g = got->message;
    EXPECT_EQ(got->session, sent.session);
    EXPECT_EQ(std::tie(g.id, g.prompt, g.begin, g.end, g.n_prompt_logprobs, g.priority,
                       g.arrival_ns, g.label),
              std::tie(m.id, m.prompt, m.begin, m.end, m.n_prompt_logprobs, m.priority,
                       m.arrival_ns, m.label));
    EXPECT_EQ(as_tuple(g.to), as_tuple(m.to));
  }
}

TokenRequest random_request(Random& random) {
  TokenRequest m;
  m.id = RequestId{random.any()};
  m.prompt = random.ids(17 + random.below(1000));
  m.sampling.temperature = 2 * random.unit();
  m.sampling.top_p = random.unit() + 1e-6F;
  if (m.sampling.top_p > 1) m.sampling.top_p = 1;
  m.sampling.top_k = random.below(100);
  m.sampling.min_p = random.unit();
  m.sampling.seed = random.any();
  m.sampling.presence_penalty = 4 * random.unit() - 2;
  m.sampling.frequency_penalty = 4 * random.unit() - 2;
  m.sampling.repetition_penalty = 0.5F + random.unit();
  for (int i = random.below(5); i > 0; --i) {
    m.sampling.logit_bias.emplace_back(random.below(kVocab), 200 * random.unit() - 100);
  }
  m.n_choices = random.coin() ? 1 : 1 + random.below(10);
  m.first_choice = random.below(100);
  m.max_tokens = 100 + random.below(1000);
  m.min_tokens = random.below(100);
  m.eos_ids = random.ids(random.below(4));
  m.stop_ids = random.ids(random.below(4));
  m.ignore_eos = random.coin();
  if (random.coin()) m.n_logprobs = random.below(21);
  if (random.coin()) m.n_prompt_logprobs = random.below(21);
  m.priority = random.below(100) - 50;
  m.arrival_ns = static_cast<int64_t>(random.any() >> 1);
  m.label = random.coin() ? "" : "cmpl-0a-1";
  if (random.coin()) {
    m.leased = {LeaseId{random.any()}, random.below(static_cast<int>(m.prompt.size()) / 16) * 16};
  }
  if (m.n_choices == 1) m.output = random.ids(random.below(100));
  return m;
}

TEST(Microserving, StartGenerateThereAndBack) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const InSession<TokenRequest> sent{random.coin() ? "00c0ffee" : "", random_request(random)};
    const TokenRequest& m = sent.message;
    const auto got = read_start_generate(write_start_generate(sent), kLimits);
    ASSERT_TRUE(got.has_value()) << got.error().message;
    const TokenRequest& g = got->message;
    EXPECT_EQ(got->session, sent.session);
    EXPECT_EQ(std::tie(g.id, g.prompt, g.n_choices, g.first_choice, g.max_tokens, g.min_tokens,
                       g.eos_ids, g.stop_ids, g.ignore_eos, g.n_logprobs, g.n_prompt_logprobs,
                       g.priority, g.arrival_ns, g.label, g.output),
              std::tie(m.id, m.prompt, m.n_choices, m.first_choice, m.max_tokens, m.min_tokens,
                       m.eos_ids, m.stop_ids, m.ignore_eos, m.n_logprobs, m.n_prompt_logprobs,
                       m.priority, m.arrival_ns, m.label, m.output));
    EXPECT_EQ(g.leased.has_value(), m.leased.has_value());
    if (m.leased && g.leased) {
      EXPECT_EQ(g.leased->lease, m.leased->lease);
      EXPECT_EQ(g.leased->begin, m.leased->begin);
    }
    const auto floats = [](const SamplingParams& s) {
      std::vector<uint32_t> out;
      for (const float f : {s.temperature, s.top_p, s.min_p, s.presence_penalty,
                            s.frequency_penalty, s.repetition_penalty}) {
        out.push_back(bits(f));
      }
      for (const auto& [id, bias] : s.logit_bias) {
        out.push_back(static_cast<uint32_t>(id));
        out.push_back(bits(bias));
      }
      return out;
    };
    EXPECT_EQ(floats(g.sampling), floats(m.sampling));
    EXPECT_EQ(g.sampling.top_k, m.sampling.top_k);
    EXPECT_EQ(g.sampling.seed, m.sampling.seed);
  }
}

TEST(Microserving, ReleaseAndAttachThereAndBack) {
  const auto lease =
      read_release(write_release({"", {.lease = LeaseId{kMax}, .request = {}, .choice = {}}}));
  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(lease->message.lease, LeaseId{kMax});
  EXPECT_FALSE(lease->message.request.has_value());
  const auto request =
      read_release(write_release({"s", {.lease = {}, .request = RequestId{0}, .choice = 3}}));
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->session, "s");
  EXPECT_EQ(request->message.request, RequestId{0});
  EXPECT_EQ(request->message.choice, 3);
  EXPECT_EQ(read_attach(write_attach({"router 1"}))->router, "router 1");
}

TEST(Microserving, AttachedThereAndBack) {
  for (const Role role : {Role::kPrefill, Role::kDecode, Role::kBoth}) {
    const Attached sent{"00c0ffee",
                        {.role = role,
                         .incarnation = kMax,
                         .pid = 4711,
                         .cpus = {0, 3},
                         .context_tokens = 8192,
                         .n_vocab = kVocab,
                         .n_blocks = 700,
                         .block_tokens = 16,
                         .max_batch = 64,
                         .prefill_min_tokens = 128,
                         .layout_hash = kMax - 1,
                         .in_world = role != Role::kBoth}};
    const std::string line = write_attached(sent);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const auto got = read_attached(line);
    ASSERT_TRUE(got.has_value()) << got.error().message;
    EXPECT_EQ(got->session, sent.session);
    EXPECT_EQ(as_tuple(got->engine), as_tuple(sent.engine));
  }
}

RequestUpdate random_update(Random& random) {
  RequestUpdate out;
  out.id = RequestId{random.any()};
  if (random.coin()) {
    out.prompt = PromptInfo{.n_prompt_tokens = 100 + random.below(100),
                            .n_cached_tokens = random.below(100),
                            .prompt_logprobs = {}};
    if (random.coin()) out.prompt->prompt_logprobs = random.logprobs(out.prompt->n_prompt_tokens);
  }
  constexpr FinishReason kReasons[] = {FinishReason::kStop, FinishReason::kLength,
                                       FinishReason::kCancelled, FinishReason::kError,
                                       FinishReason::kGivenUp};
  for (int i = random.below(4); i > 0; --i) {
    TokenEvent& event = out.events.emplace_back();
    event.choice = random.below(128);
    event.tokens = random.ids(random.below(3));
    if (random.coin()) event.logprobs = random.logprobs(static_cast<int>(event.tokens.size()));
    if (random.coin()) event.finish = kReasons[random.below(5)];
    if (random.coin()) event.stop_id = random.below(kVocab);
    if (random.coin()) event.error = "the \"engine\"\nwas stopped \xE2\x82\xAC";
    if (event.finish == FinishReason::kError) event.code = ErrorCode(random.below(9));
  }
  return out;
}

TEST(Microserving, FramesThereAndBack) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    Frame sent;
    for (int i = random.below(5); i > 0; --i) sent.updates.push_back(random_update(random));
    sent.state = {.alive = random.coin(),
                  .ready = random.coin(),
                  .reason = random.coin() ? "" : "draining",
                  .n_running = random.below(64),
                  .n_waiting = random.below(64),
                  .blocks_free = random.below(1000),
                  .blocks_used = random.below(1000),
                  .blocks_cached = random.below(1000),
                  .blocks_leased = random.below(1000)};
    const std::string line = write_frame(sent);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const auto got = read_frame(line, kVocab);
    ASSERT_TRUE(got.has_value()) << got.error().message << "\n" << line;
    EXPECT_EQ(as_tuple(got->state), as_tuple(sent.state));
    ASSERT_EQ(got->updates.size(), sent.updates.size());
    for (size_t i = 0; i < sent.updates.size(); ++i) {
      const RequestUpdate& s = sent.updates[i];
      const RequestUpdate& g = got->updates[i];
      EXPECT_EQ(g.id, s.id);
      ASSERT_EQ(g.prompt.has_value(), s.prompt.has_value());
      if (s.prompt) {
        EXPECT_EQ(g.prompt->n_prompt_tokens, s.prompt->n_prompt_tokens);
        EXPECT_EQ(g.prompt->n_cached_tokens, s.prompt->n_cached_tokens);
        expect_same(g.prompt->prompt_logprobs, s.prompt->prompt_logprobs);
      }
      ASSERT_EQ(g.events.size(), s.events.size());
      for (size_t e = 0; e < s.events.size(); ++e) {
        const TokenEvent& a = s.events[e];
        const TokenEvent& b = g.events[e];
        EXPECT_EQ(std::tie(a.choice, a.tokens, a.finish, a.stop_id, a.error, a.code),
                  std::tie(b.choice, b.tokens, b.finish, b.stop_id, b.error, b.code));
        expect_same(a.logprobs, b.logprobs);
      }
    }
  }
}

TEST(Microserving, PreparedAndSentThereAndBack) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    const PreparedReceive prepared{.lease = LeaseId{random.any()},
                                   .n_matched = random.below(1000),
                                   .address = random.address(random.below(100)),
                                   .lease_ns = static_cast<int64_t>(random.any() >> 1)};
    const std::string prepared_body = write_prepared(prepared, seed);
    const auto p = read_prepared(prepared_body);
    ASSERT_TRUE(p.has_value()) << p.error().message;
    EXPECT_EQ(std::tie(p->lease, p->n_matched, p->lease_ns),
              std::tie(prepared.lease, prepared.n_matched, prepared.lease_ns));
    EXPECT_EQ(as_tuple(p->address), as_tuple(prepared.address));
    EXPECT_EQ(read_incarnation(prepared_body).value(), seed);

    const SentKv sent{.n_cached_tokens = random.below(1000),
                      .n_bytes = static_cast<int64_t>(random.any() >> 1),
                      .put_ns = random.below(1000),
                      .queue_ns = random.below(1000),
                      .prefill_ns = random.below(1000),
                      .prompt_logprobs = random.logprobs(random.below(50))};
    const std::string sent_body = write_sent(sent, kMax);
    const auto s = read_sent(sent_body, kVocab);
    ASSERT_TRUE(s.has_value()) << s.error().message;
    EXPECT_EQ(
        std::tie(s->n_cached_tokens, s->n_bytes, s->put_ns, s->queue_ns, s->prefill_ns),
        std::tie(sent.n_cached_tokens, sent.n_bytes, sent.put_ns, sent.queue_ns, sent.prefill_ns));
    expect_same(s->prompt_logprobs, sent.prompt_logprobs);
    EXPECT_EQ(read_incarnation(sent_body).value(), kMax);
  }
  EXPECT_EQ(read_incarnation(write_done(7)).value(), 7U);
}

/// One float through the wire, as the logprob of an event.
float travelled(float value) {
  Frame frame;
  TokenEvent event;
  event.tokens = {1};
  event.logprobs = {{value, {}}};
  frame.updates.push_back({RequestId{1}, std::nullopt, {event}});
  return read_frame(write_frame(frame), kVocab).value().updates[0].events[0].logprobs[0].logprob;
}

TEST(Microserving, FloatsKeepTheirBits) {
  using Limits = std::numeric_limits<float>;
  for (const float value :
       {0.0F, -0.0F, Limits::infinity(), -Limits::infinity(), Limits::min(), Limits::max(),
        -Limits::max(), Limits::denorm_min(), Limits::epsilon(), 0.1F, -1.0F / 3, 16777217.0F}) {
    EXPECT_EQ(bits(travelled(value)), bits(value)) << value;
  }
  EXPECT_TRUE(std::isnan(travelled(Limits::quiet_NaN())));
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(bits(travelled(value)), bits(value)) << value;
  }
}

TEST(Microserving, ErrorsBecomeErrorsOfThisSide) {
  const auto back = [](ErrorCode code) {
    const ApiError error = from_error({code, "why", false});
    return read_error(error.status, error_body(error));
  };
  EXPECT_EQ(back(ErrorCode::kInvalidArgument).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(back(ErrorCode::kNotFound).code, ErrorCode::kNotFound);
  EXPECT_EQ(back(ErrorCode::kExhausted).code, ErrorCode::kExhausted);
  EXPECT_TRUE(back(ErrorCode::kExhausted).retryable);
  EXPECT_EQ(back(ErrorCode::kUnavailable).code, ErrorCode::kUnavailable);
  EXPECT_EQ(back(ErrorCode::kInternal).code, ErrorCode::kUnavailable);
  EXPECT_EQ(back(ErrorCode::kNotFound).message, "why");
  const ApiError conflict = mismatch("to.incarnation", "incarnation", "1", "2");
  EXPECT_EQ(read_error(conflict.status, error_body(conflict)).code, ErrorCode::kUnavailable);
  EXPECT_NE(conflict.message.find("is 2 here"), std::string::npos) << conflict.message;
  EXPECT_NE(conflict.message.find("names 1"), std::string::npos) << conflict.message;
  for (const char* body : {"", "{}", "[", R"({"error":5})", R"({"error":{"message":5}})"}) {
    EXPECT_EQ(read_error(401, body).code, ErrorCode::kInternal);
    EXPECT_NE(read_error(401, body).message.find("401"), std::string::npos);
  }
}

/// Fenced blocks of docs/protocol.md: "```json KIND", one line, "```".
std::vector<std::pair<std::string, std::string>> documented_messages() {
  std::vector<std::pair<std::string, std::string>> out;
  std::ifstream in(BATON_SOURCE_DIR "/docs/protocol.md");
  constexpr std::string_view kFence = "```json ";
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(kFence)) continue;
    std::string message;
    std::getline(in, message);
    out.emplace_back(line.substr(kFence.size()), message);
  }
  return out;
}

TEST(Microserving, TheDocumentedExamplesAreReadAndWrittenTheSame) {
  constexpr WireLimits kToy{.n_vocab = 64, .context_tokens = 256, .block_tokens = 16};
  const auto same = [](const std::string& text, std::string written) {
    if (written.ends_with('\n')) written.pop_back();
    EXPECT_EQ(nlohmann::json::parse(text), nlohmann::json::parse(written));
  };
  // Written anew, a request has its defaults in it: only the fields that it had must be the same.
  const auto at_least = [](const std::string& text, const std::string& written) {
    const auto all = nlohmann::json::parse(written);
    const auto asked = nlohmann::json::parse(text);
    for (const auto& [key, value] : asked.items()) {
      if (key == "sampling") continue;
      EXPECT_EQ(all[key], value) << key;
    }
  };
  std::set<std::string> kinds;
  for (const auto& [kind, text] : documented_messages()) {
    SCOPED_TRACE(text);
    kinds.insert(kind);
    if (kind == "attached") same(text, write_attached(read_attached(text).value()));
    if (kind == "frame") same(text, write_frame(read_frame(text, 64).value()));
    if (kind == "prepared") {
      same(text, write_prepared(read_prepared(text).value(), read_incarnation(text).value()));
    }
    if (kind == "sent") {
      same(text, write_sent(read_sent(text, 64).value(), read_incarnation(text).value()));
    }
    if (kind == "done") same(text, write_done(read_incarnation(text).value()));
    if (kind == "prep_recv") at_least(text, write_prep_recv(read_prep_recv(text, kToy).value()));
    if (kind == "remote_send") {
      at_least(text, write_remote_send(read_remote_send(text, kToy).value()));
    }
    if (kind == "start_generate") {
      at_least(text, write_start_generate(read_start_generate(text, kToy).value()));
    }
    if (kind == "release") same(text, write_release(read_release(text).value()));
    if (kind == "error") {
      EXPECT_EQ(read_error(409, text).code, ErrorCode::kUnavailable);
      EXPECT_EQ(read_error(409, text).message.find("HTTP status"), std::string::npos);
    }
  }
  EXPECT_EQ(kinds,
            (std::set<std::string>{"attached", "done", "error", "frame", "prep_recv", "prepared",
                                   "release", "remote_send", "sent", "start_generate"}));
}

}  // namespace
}  // namespace baton::api
