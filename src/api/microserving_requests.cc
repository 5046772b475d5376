// What the engine reads.
#include <cmath>
#include <nlohmann/json.hpp>

#include "api/microserving.h"
#include "api/wire_reader.h"

namespace baton::api {
namespace {

constexpr size_t kMaxSessionBytes = 64;
constexpr int64_t kMaxLeaseNs = int64_t{3600} * 1'000'000'000;
constexpr double kFloatMax = std::numeric_limits<float>::max();

std::string read_session(WireReader& reader) {
  std::string session = reader.fields().string("session").value_or("");
  if (session.size() > kMaxSessionBytes) {
    reader.fields().fail("session", "'session' has {} bytes, more than {}", session.size(),
                         kMaxSessionBytes);
  }
  return session;
}

std::vector<TokenId> read_prompt(WireReader& reader, const WireLimits& limits) {
  std::vector<TokenId> prompt = reader.ids("prompt", limits.n_vocab);
  if (prompt.empty()) reader.fields().fail("prompt", "'prompt' is empty");
  if (prompt.size() > static_cast<size_t>(limits.context_tokens)) {
    reader.fields().fail("prompt", "'prompt' has {} tokens, the context {}", prompt.size(),
                         limits.context_tokens);
  }
  return prompt;
}

/// A count of tokens at the start of the prompt: whole blocks that leave a last token to compute.
int read_boundary(WireReader& reader, std::string_view key, size_t n_prompt,
                  const WireLimits& limits) {
  const int value = reader.integer(key, {0, kInt32Max});
  if (value % limits.block_tokens != 0 || (value > 0 && static_cast<size_t>(value) >= n_prompt)) {
    reader.fields().fail(key,
                         "'{}' is {}: it must be a multiple of {} below the prompt's {} tokens",
                         reader.fields().path(key), value, limits.block_tokens, n_prompt);
  }
  return value;
}

void read_logit_bias(WireReader& reader, int n_vocab, SamplingParams& out) {
  if (reader.fields().find("logit_bias") == nullptr) return;
  const nlohmann::json* pairs = reader.array("logit_bias");
  if (pairs == nullptr) return;
  for (size_t i = 0; i < pairs->size(); ++i) {
    const nlohmann::json& pair = (*pairs)[i];
    const bool shaped = pair.is_array() && pair.size() == 2 && pair[0].is_number_unsigned() &&
                        pair[0].get<uint64_t>() < static_cast<uint64_t>(n_vocab) &&
                        pair[1].is_number() && std::abs(pair[1].get<double>()) <= 100;
    if (!shaped) {
      return reader.fields().fail(
          "logit_bias", "'{}[{}]' must be [id, bias], id from 0 to {} and bias from -100 to 100",
          reader.fields().path("logit_bias"), i, n_vocab - 1);
    }
    out.logit_bias.emplace_back(static_cast<TokenId>(pair[0].get<uint64_t>()),
                                static_cast<float>(pair[1].get<double>()));
  }
}

SamplingParams read_sampling(WireReader& parent, int n_vocab) {
  SamplingParams out;
  if (parent.fields().find("sampling") == nullptr) return out;
  const nlohmann::json* object = parent.object("sampling");
  if (object == nullptr) return out;
  WireReader reader(*object, "sampling.");
  FieldReader& fields = reader.fields();
  out.temperature = fields.number("temperature", 0, 2).value_or(out.temperature);
  out.top_p = fields.number("top_p", 0, 1).value_or(out.top_p);
  if (out.top_p <= 0) fields.fail("top_p", "'sampling.top_p' must be above 0");
  out.top_k = reader.optional_integer("top_k", {0, kInt32Max}).value_or(out.top_k);
  out.min_p = fields.number("min_p", 0, 1).value_or(out.min_p);
  out.seed = reader.optional_digits("seed").value_or(out.seed);
  out.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(out.presence_penalty);
  out.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(out.frequency_penalty);
  out.repetition_penalty =
      fields.number("repetition_penalty", 0, kFloatMax).value_or(out.repetition_penalty);
  if (!std::isnormal(out.repetition_penalty)) {
    fields.fail("repetition_penalty", "'sampling.repetition_penalty' must be above 0");
  }
  read_logit_bias(reader, n_vocab, out);
  parent.join(reader);
  return out;
}

void read_lease(WireReader& parent, const WireLimits& limits, TokenRequest& out) {
  if (parent.fields().find("leased") == nullptr) return;
  const nlohmann::json* object = parent.object("leased");
  if (object == nullptr) return;
  WireReader reader(*object, "leased.");
  TokenRequest::LeasedPrefix leased;
  leased.lease = LeaseId{reader.digits("lease")};
  leased.begin = read_boundary(reader, "begin", out.prompt.size(), limits);
  parent.join(reader);
  out.leased = leased;
}

/// Ids that may be left out.
std::vector<TokenId> read_ids(WireReader& reader, std::string_view key, int n_vocab) {
  return reader.fields().token_ids(key, n_vocab).value_or(std::vector<TokenId>{});
}

void read_choices(WireReader& reader, const WireLimits& limits, TokenRequest& out) {
  out.n_choices = reader.optional_integer("n_choices", {1, kMaxChoices}).value_or(1);
  out.first_choice = reader.optional_integer("first_choice", {0, kMaxChoices - 1}).value_or(0);
  if (out.first_choice + out.n_choices > kMaxChoices) {
    reader.fields().fail("first_choice", "'first_choice' {} and 'n_choices' {} are more than {}",
                         out.first_choice, out.n_choices, kMaxChoices);
  }
  out.output = read_ids(reader, "output", limits.n_vocab);
  if (!out.output.empty() && out.n_choices != 1) {
    reader.fields().fail("output", "'output' needs 'n_choices' 1, not {}", out.n_choices);
  }
  if (!out.output.empty() && out.output.size() >= static_cast<size_t>(out.max_tokens)) {
    reader.fields().fail("output",
                         "'output' has {} tokens: 'max_tokens' {} leaves none to generate",
                         out.output.size(), out.max_tokens);
  }
}

}  // namespace

ApiResult<AttachRequest> read_attach(std::string_view body) {
  const auto json = parse_object(body, {});
  if (!json) return tl::unexpected(json.error());
  WireReader reader(**json);
  AttachRequest out{reader.label("router")};
  if (out.router.empty()) reader.fields().fail("router", "'router' is missing: a name for the log");
  if (reader.failed()) return reader.error();
  return out;
}

ApiResult<InSession<PrepareReceive>> read_prep_recv(std::string_view body,
                                                    const WireLimits& limits) {
  const auto json = parse_object(body, {});
  if (!json) return tl::unexpected(json.error());
  WireReader reader(**json);
  InSession<PrepareReceive> out{read_session(reader), {}};
  PrepareReceive& message = out.message;
  message.prompt = read_prompt(reader, limits);
  message.end = read_boundary(reader, "end", message.prompt.size(), limits);
  if (message.end == 0) reader.fields().fail("end", "'end' is 0: there is nothing to receive");
  message.match_prefix = reader.fields().boolean("match_prefix").value_or(true);
  message.lease_ns = reader.fields().integer("lease_ns", {0, kMaxLeaseNs}).value_or(0);
  message.label = reader.label("label");
  if (reader.failed()) return reader.error();
  return out;
}

ApiResult<InSession<RemoteSend>> read_remote_send(std::string_view body, const WireLimits& limits) {
  const auto json = parse_object(body, {});
  if (!json) return tl::unexpected(json.error());
  WireReader reader(**json);
  InSession<RemoteSend> out{read_session(reader), {}};
  RemoteSend& message = out.message;
  message.id = RequestId{reader.digits("id")};
  message.prompt = read_prompt(reader, limits);
  message.begin = read_boundary(reader, "begin", message.prompt.size(), limits);
  message.end = read_boundary(reader, "end", message.prompt.size(), limits);
  if (message.begin >= message.end) {
    reader.fields().fail("begin", "'begin' is {}, not below 'end' {}", message.begin, message.end);
  }
  message.to = reader.address("to");
  const int n_blocks = (message.end - message.begin) / limits.block_tokens;
  if (message.to.blocks.size() != static_cast<size_t>(n_blocks)) {
    reader.fields().fail("to.blocks", "'to.blocks' has {} blocks: tokens {} to {} take {}",
                         message.to.blocks.size(), message.begin, message.end, n_blocks);
  }
  message.n_prompt_logprobs = reader.optional_integer("n_prompt_logprobs", {0, kMaxLogprobs});
  message.priority =
      reader.optional_integer("priority", {-kInt32Max - 1, kInt32Max}).value_or(message.priority);
  message.arrival_ns = reader.fields().integer("arrival_ns", {0, kInt64Max}).value_or(0);
  message.label = reader.label("label");
  if (reader.failed()) return reader.error();
  return out;
}

ApiResult<InSession<TokenRequest>> read_start_generate(std::string_view body,
                                                       const WireLimits& limits) {
  const auto json = parse_object(body, {});
  if (!json) return tl::unexpected(json.error());
  WireReader reader(**json);
  InSession<TokenRequest> out{read_session(reader), {}};
  TokenRequest& message = out.message;
  message.id = RequestId{reader.digits("id")};
  message.prompt = read_prompt(reader, limits);
  message.sampling = read_sampling(reader, limits.n_vocab);
  message.n_prompt_logprobs = reader.optional_integer("n_prompt_logprobs", {0, kMaxLogprobs});
  message.n_logprobs = reader.optional_integer("n_logprobs", {0, kMaxLogprobs});
  message.max_tokens = reader.integer("max_tokens", {0, kInt32Max});
  if (message.max_tokens == 0 && !message.n_prompt_logprobs) {
    reader.fields().fail("max_tokens", "'max_tokens' is 0: only together with 'n_prompt_logprobs'");
  }
  message.min_tokens = reader.optional_integer("min_tokens", {0, kInt32Max}).value_or(0);
  if (message.min_tokens > message.max_tokens) {
    reader.fields().fail("min_tokens", "'min_tokens' is {}, more than 'max_tokens' {}",
                         message.min_tokens, message.max_tokens);
  }
  read_choices(reader, limits, message);
  message.eos_ids = read_ids(reader, "eos_ids", limits.n_vocab);
  message.stop_ids = read_ids(reader, "stop_ids", limits.n_vocab);
  message.ignore_eos = reader.fields().boolean("ignore_eos").value_or(false);
  message.priority =
      reader.optional_integer("priority", {-kInt32Max - 1, kInt32Max}).value_or(message.priority);
  message.arrival_ns = reader.fields().integer("arrival_ns", {0, kInt64Max}).value_or(0);
  message.label = reader.label("label");
  read_lease(reader, limits, message);
  if (reader.failed()) return reader.error();
  return out;
}

ApiResult<InSession<Release>> read_release(std::string_view body) {
  const auto json = parse_object(body, {});
  if (!json) return tl::unexpected(json.error());
  WireReader reader(**json);
  InSession<Release> out{read_session(reader), {}};
  Release& message = out.message;
  if (const auto lease = reader.optional_digits("lease")) message.lease = LeaseId{*lease};
  if (const auto request = reader.optional_digits("request")) message.request = RequestId{*request};
  message.choice = reader.optional_integer("choice", {0, kMaxChoices - 1});
  if (reader.failed()) return reader.error();
  if (message.lease.has_value() == message.request.has_value()) {
    return invalid("lease", "give either 'lease' or 'request'");
  }
  if (message.request && out.session.empty()) {
    return invalid("session", "'request' needs the 'session' that it belongs to");
  }
  if (message.choice && !message.request) return invalid("choice", "'choice' needs a 'request'");
  return out;
}

}  // namespace baton::api
