// What must not get through, and the field that the refusal names.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/microserving.h"

namespace baton::api {
namespace {

using nlohmann::json;

constexpr WireLimits kLimits{.n_vocab = 100, .context_tokens = 64, .block_tokens = 16};

/// A change to a message that is right: the value of a field (by JSON pointer), or its removal.
struct Change {
  const char* pointer;
  json value;  ///< discarded = remove the field
  const char* param;
};

const json kRemove = json(json::value_t::discarded);

json changed(json message, const Change& change) {
  const json::json_pointer pointer(change.pointer);
  if (change.value.is_discarded()) {
    message.at(pointer.parent_pointer()).erase(pointer.back());
  } else {
    message[pointer] = change.value;
  }
  return message;
}

/// `read` takes the message as it is, and refuses each change by the parameter.
template <typename Read>
void check(const json& message, const std::vector<Change>& changes, Read read) {
  const auto fine = read(message.dump());
  ASSERT_TRUE(fine.has_value()) << fine.error().message;
  for (const Change& change : changes) {
    const json wrong = changed(message, change);
    const auto got = read(wrong.dump());
    ASSERT_FALSE(got.has_value()) << change.pointer << " " << change.value;
    EXPECT_EQ(got.error().status, 400);
    EXPECT_EQ(got.error().param, change.param) << got.error().message;
    EXPECT_NE(got.error().message.find(change.param), std::string::npos) << got.error().message;
  }
  for (const char* body : {"", "null", "[]", "5", "{", "{\"a\":}", "\xff"}) {
    EXPECT_FALSE(read(body).has_value()) << body;
  }
  json with_more = message;
  with_more["of_a_later_version"] = {{"a", 1}};
  EXPECT_TRUE(read(with_more.dump()).has_value());
}

json prompt(int n) {
  json out = json::array();
  for (int i = 0; i < n; ++i) out.push_back(i);
  return out;
}

const json kAddress = {{"pe", 1},          {"incarnation", "17"}, {"layout_hash", "18"},
                       {"window_slot", 2}, {"window_tag", "19"},  {"blocks", {4, 5}}};

TEST(MicroservingMalformed, PrepRecv) {
  const json message = {{"session", "s"},   {"prompt", prompt(40)}, {"end", 32},
                        {"lease_ns", 1000}, {"label", "cmpl-1"},    {"match_prefix", false}};
  check(message,
        {{"/session", 5, "session"},
         {"/session", std::string(65, 'a'), "session"},
         {"/prompt", kRemove, "prompt"},
         {"/prompt", json::array(), "prompt"},
         {"/prompt", "text", "prompt"},
         {"/prompt/3", 100, "prompt"},
         {"/prompt/3", -1, "prompt"},
         {"/prompt/3", 1.5, "prompt"},
         {"/prompt", prompt(65), "prompt"},
         {"/end", kRemove, "end"},
         {"/end", "32", "end"},
         {"/end", 31, "end"},
         {"/end", 0, "end"},
         {"/end", -16, "end"},
         {"/end", 48, "end"},
         {"/end", 1e30, "end"},
         {"/match_prefix", 1, "match_prefix"},
         {"/lease_ns", -1, "lease_ns"},
         {"/lease_ns", 3'600'000'000'001, "lease_ns"},
         {"/lease_ns", "1", "lease_ns"},
         {"/label", "a\nb", "label"},
         {"/label", std::string(129, 'a'), "label"}},
        [](std::string_view body) { return read_prep_recv(body, kLimits); });
}

TEST(MicroservingMalformed, RemoteSend) {
  const json message = {{"id", "7"},      {"prompt", prompt(50)},   {"begin", 16},
                        {"end", 48},      {"to", kAddress},         {"n_prompt_logprobs", 3},
                        {"priority", -1}, {"arrival_ns", 99999999}, {"label", "cmpl-1"}};
  check(message,
        {{"/id", kRemove, "id"},
         {"/id", 7, "id"},
         {"/id", "", "id"},
         {"/id", "-1", "id"},
         {"/id", "0x1", "id"},
         {"/id", "1 ", "id"},
         {"/id", "18446744073709551616", "id"},
         {"/begin", kRemove, "begin"},
         {"/begin", 48, "begin"},
         {"/begin", 17, "begin"},
         {"/begin", 0, "to.blocks"},
         {"/end", 49, "end"},
         {"/end", 16, "begin"},
         {"/to", kRemove, "to"},
         {"/to", "here", "to"},
         {"/to/pe", kRemove, "to.pe"},
         {"/to/pe", -1, "to.pe"},
         {"/to/pe", 4294967296, "to.pe"},
         {"/to/incarnation", kRemove, "to.incarnation"},
         {"/to/incarnation", 17, "to.incarnation"},
         {"/to/layout_hash", kRemove, "to.layout_hash"},
         {"/to/window_slot", kRemove, "to.window_slot"},
         {"/to/window_slot", -2, "to.window_slot"},
         {"/to/window_tag", nullptr, "to.window_tag"},
         {"/to/blocks", kRemove, "to.blocks"},
         {"/to/blocks", json::array({4}), "to.blocks"},
         {"/to/blocks/0", -4, "to.blocks"},
         {"/to/blocks/0", 4294967296, "to.blocks"},
         {"/n_prompt_logprobs", 21, "n_prompt_logprobs"},
         {"/priority", 3000000000, "priority"},
         {"/arrival_ns", -5, "arrival_ns"},
         {"/label", 5, "label"}},
        [](std::string_view body) { return read_remote_send(body, kLimits); });
}

TEST(MicroservingMalformed, StartGenerate) {
  const json message = {{"id", "7"},
                        {"session", "s"},
                        {"prompt", prompt(50)},
                        {"sampling", {{"temperature", 0.5}, {"logit_bias", {{1, -3.5}}}}},
                        {"n_choices", 1},
                        {"first_choice", 2},
                        {"max_tokens", 5},
                        {"min_tokens", 1},
                        {"eos_ids", {2}},
                        {"stop_ids", {3}},
                        {"ignore_eos", false},
                        {"n_logprobs", 5},
                        {"leased", {{"lease", "9"}, {"begin", 48}}},
                        {"output", {1, 2}}};
  check(message,
        {{"/id", kRemove, "id"},
         {"/prompt", kRemove, "prompt"},
         {"/sampling", 5, "sampling"},
         {"/sampling/temperature", 2.5, "sampling.temperature"},
         {"/sampling/temperature", "1", "sampling.temperature"},
         {"/sampling/top_p", 0, "sampling.top_p"},
         {"/sampling/top_p", 1e-60, "sampling.top_p"},
         {"/sampling/top_k", -1, "sampling.top_k"},
         {"/sampling/min_p", 2, "sampling.min_p"},
         {"/sampling/seed", 5, "sampling.seed"},
         {"/sampling/presence_penalty", 3, "sampling.presence_penalty"},
         {"/sampling/frequency_penalty", -3, "sampling.frequency_penalty"},
         {"/sampling/repetition_penalty", 0, "sampling.repetition_penalty"},
         {"/sampling/logit_bias", {{"1", 2}}, "sampling.logit_bias"},
         {"/sampling/logit_bias/0", json::array({1}), "sampling.logit_bias"},
         {"/sampling/logit_bias/0/0", 100, "sampling.logit_bias"},
         {"/sampling/logit_bias/0/1", 101, "sampling.logit_bias"},
         {"/sampling/logit_bias/0/1", nullptr, "sampling.logit_bias"},
         {"/n_choices", 0, "n_choices"},
         {"/n_choices", 129, "n_choices"},
         {"/n_choices", 2, "output"},
         {"/first_choice", -1, "first_choice"},
         {"/first_choice", 128, "first_choice"},
         {"/max_tokens", kRemove, "max_tokens"},
         {"/max_tokens", 0, "max_tokens"},
         {"/max_tokens", 2, "output"},
         {"/min_tokens", 6, "min_tokens"},
         {"/eos_ids", {100}, "eos_ids"},
         {"/stop_ids", {-1}, "stop_ids"},
         {"/ignore_eos", 0, "ignore_eos"},
         {"/n_logprobs", 21, "n_logprobs"},
         {"/n_prompt_logprobs", -1, "n_prompt_logprobs"},
         {"/leased", "9", "leased"},
         {"/leased/lease", 9, "leased.lease"},
         {"/leased/begin", 64, "leased.begin"},
         {"/leased/begin", 40, "leased.begin"},
         {"/output/0", 100, "output"}},
        [](std::string_view body) { return read_start_generate(body, kLimits); });
}

TEST(MicroservingMalformed, ReleaseAndAttach) {
  check({{"session", "s"}, {"request", "5"}, {"choice", 1}},
        {{"/session", kRemove, "session"},
         {"/request", kRemove, "lease"},
         {"/request", 5, "request"},
         {"/lease", "6", "lease"},
         {"/choice", -1, "choice"},
         {"/choice", 128, "choice"}},
        [](std::string_view body) { return read_release(body); });
  check({{"lease", "5"}}, {{"/lease", 5, "lease"}, {"/choice", 1, "choice"}},
        [](std::string_view body) { return read_release(body); });
  check({{"router", "r"}},
        {{"/router", kRemove, "router"}, {"/router", "", "router"}, {"/router", "\t", "router"}},
        [](std::string_view body) { return read_attach(body); });
}

/// As check(), of what an engine says.
template <typename Read>
void check_answer(const json& message, const std::vector<Change>& changes, Read read) {
  check(message, changes, [&](std::string_view body) -> ApiResult<int> {
    const auto got = read(body);
    if (got) return 0;
    EXPECT_EQ(got.error().code, ErrorCode::kCorrupt);
    // The parameter of an Error is in its message only.
    const size_t quote = got.error().message.find('\'');
    const size_t end = got.error().message.find('\'', quote + 1);
    std::string param = got.error().message.substr(quote + 1, end - quote - 1);
    return tl::unexpected(ApiError{.status = 400, .message = got.error().message, .param = param});
  });
}

TEST(MicroservingMalformed, Frames) {
  const json event = {
      {"choice", 0},          {"tokens", {5}}, {"logprobs", {{-0.5, 5, -0.5, 6, "-inf"}}},
      {"finish", "error"},    {"stop_id", 3},  {"error", "e"},
      {"code", "unavailable"}};
  const json message = {{"updates",
                         {{{"id", "1"},
                           {"prompt",
                            {{"n_prompt_tokens", 2},
                             {"n_cached_tokens", 1},
                             {"prompt_logprobs", {{0}, {-1.5, 7, 1}}}}},
                           {"events", {event}}}}},
                        {"state",
                         {{"alive", true},
                          {"ready", true},
                          {"n_running", 1},
                          {"n_waiting", 0},
                          {"blocks_free", 1},
                          {"blocks_used", 0},
                          {"blocks_cached", 0},
                          {"blocks_leased", 0}}}};
  check_answer(
      message,
      {{"/updates", kRemove, "updates"},
       {"/updates/0", 5, "updates[0]"},
       {"/updates/0/id", kRemove, "updates[0].id"},
       {"/updates/0/prompt", 5, "updates[0].prompt"},
       {"/updates/0/prompt/n_prompt_tokens", -1, "updates[0].prompt.n_prompt_tokens"},
       {"/updates/0/prompt/n_prompt_tokens", 1, "updates[0].prompt.prompt_logprobs"},
       {"/updates/0/prompt/n_cached_tokens", 3, "updates[0].prompt.n_cached_tokens"},
       {"/updates/0/events", kRemove, "updates[0].events"},
       {"/updates/0/events/0/choice", 128, "updates[0].events[0].choice"},
       {"/updates/0/events/0/tokens/0", 100, "updates[0].events[0].tokens[0]"},
       {"/updates/0/events/0/tokens", {1, 2}, "updates[0].events[0].logprobs"},
       {"/updates/0/events/0/logprobs/0", json::array(), "updates[0].events[0].logprobs[0]"},
       {"/updates/0/events/0/logprobs/0/0", "1", "updates[0].events[0].logprobs[0]"},
       {"/updates/0/events/0/logprobs/0/0", 1e39, "updates[0].events[0].logprobs[0]"},
       {"/updates/0/events/0/logprobs/0/1", 100, "updates[0].events[0].logprobs[0]"},
       {"/updates/0/events/0/logprobs/0/1", 0.5, "updates[0].events[0].logprobs[0]"},
       {"/updates/0/events/0/logprobs/0/5", 5, "updates[0].events[0].logprobs[0]"},
       {"/updates/0/events/0/finish", "done", "updates[0].events[0].finish"},
       {"/updates/0/events/0/stop_id", 100, "updates[0].events[0].stop_id"},
       {"/updates/0/events/0/error", 5, "updates[0].events[0].error"},
       {"/updates/0/events/0/code", "odd", "updates[0].events[0].code"},
       {"/state", kRemove, "state"},
       {"/state/alive", kRemove, "state.alive"},
       {"/state/n_running", -1, "state.n_running"},
       {"/state/blocks_free", 1.5, "state.blocks_free"}},
      [](std::string_view body) { return read_frame(body, kLimits.n_vocab); });
}

TEST(MicroservingMalformed, OtherAnswers) {
  const json engine = {{"role", "both"},
                       {"incarnation", "1"},
                       {"pid", 1},
                       {"cpus", {0}},
                       {"context_tokens", 1},
                       {"n_vocab", 1},
                       {"n_blocks", 1},
                       {"block_tokens", 16},
                       {"max_batch", 1},
                       {"prefill_min_tokens", 0},
                       {"layout_hash", "1"},
                       {"in_world", true}};
  check_answer({{"session", "s"}, {"engine", engine}},
               {{"/session", kRemove, "session"},
                {"/engine", kRemove, "engine"},
                {"/engine/role", "odd", "engine.role"},
                {"/engine/incarnation", 1, "engine.incarnation"},
                {"/engine/cpus/0", -1, "engine.cpus[0]"},
                {"/engine/n_vocab", 0, "engine.n_vocab"},
                {"/engine/layout_hash", kRemove, "engine.layout_hash"},
                {"/engine/in_world", 1, "engine.in_world"}},
               [](std::string_view body) { return read_attached(body); });
  check_answer({{"incarnation", "1"},
                {"lease", "2"},
                {"n_matched", 0},
                {"lease_ns", 5},
                {"address", kAddress}},
               {{"/lease", 2, "lease"},
                {"/n_matched", kRemove, "n_matched"},
                {"/lease_ns", -1, "lease_ns"},
                {"/address/blocks/1", "x", "address.blocks[1]"}},
               [](std::string_view body) { return read_prepared(body); });
  check_answer({{"incarnation", "1"},
                {"n_cached_tokens", 0},
                {"n_bytes", 1},
                {"put_ns", 1},
                {"queue_ns", 1},
                {"prefill_ns", 1},
                {"prompt_logprobs", {{0}}}},
               {{"/n_bytes", -1, "n_bytes"},
                {"/prompt_logprobs", 1, "prompt_logprobs"},
                {"/prompt_logprobs/0", {1, 2}, "prompt_logprobs[0]"}},
               [](std::string_view body) { return read_sent(body, kLimits.n_vocab); });
  check_answer({{"incarnation", "1"}}, {{"/incarnation", "x", "incarnation"}},
               [](std::string_view body) { return read_incarnation(body); });
}

}  // namespace
}  // namespace baton::api
