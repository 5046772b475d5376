#include <array>

#include "api/json_writer.h"
#include "api/microserving.h"
#include "api/microserving_names.h"

namespace baton::api {
namespace {

template <typename Ids>
void write_ids(JsonWriter& json, std::string_view key, const Ids& ids) {
  json.key(key).begin_array();
  for (const TokenId id : ids) json.integer(id);
  json.end_array();
}

void write_optional(JsonWriter& json, std::string_view key, const std::optional<int>& value) {
  if (value) json.key(key).integer(*value);
}

/// [own, id, logprob, id, logprob, …]: one array, as there may be one for each token of a prompt.
void write_logprobs(JsonWriter& json, std::string_view key,
                    const std::vector<LogprobEntry>& entries) {
  json.key(key).begin_array();
  for (const LogprobEntry& entry : entries) {
    json.begin_array().exact(entry.logprob);
    for (const TokenLogprob& one : entry.top) json.integer(one.id).exact(one.logprob);
    json.end_array();
  }
  json.end_array();
}

void begin(JsonWriter& json, const std::string& session) {
  json.begin_object();
  if (!session.empty()) json.key("session").string(session);
}

void write_address(JsonWriter& json, std::string_view key, const KvAddress& address) {
  json.key(key).begin_object();
  json.key("pe").integer(address.pe.value);
  json.key("incarnation").digits(address.incarnation);
  json.key("layout_hash").digits(address.layout_hash);
  json.key("window_slot").integer(address.window_slot);
  json.key("window_tag").digits(address.window_tag);
  json.key("blocks").begin_array();
  for (const BlockId block : address.blocks) json.integer(block.value);
  json.end_array().end_object();
}

void write_sampling(JsonWriter& json, const SamplingParams& sampling) {
  json.key("sampling").begin_object();
  json.key("temperature").exact(sampling.temperature);
  json.key("top_p").exact(sampling.top_p);
  json.key("top_k").integer(sampling.top_k);
  json.key("min_p").exact(sampling.min_p);
  json.key("seed").digits(sampling.seed);
  json.key("presence_penalty").exact(sampling.presence_penalty);
  json.key("frequency_penalty").exact(sampling.frequency_penalty);
  json.key("repetition_penalty").exact(sampling.repetition_penalty);
  json.key("logit_bias").begin_array();
  for (const auto& [id, bias] : sampling.logit_bias) {
    json.begin_array().integer(id).exact(bias).end_array();
  }
  json.end_array().end_object();
}

void write_event(JsonWriter& json, const TokenEvent& event) {
  json.begin_object().key("choice").integer(event.choice);
  if (!event.tokens.empty()) write_ids(json, "tokens", event.tokens);
  if (!event.logprobs.empty()) write_logprobs(json, "logprobs", event.logprobs);
  if (event.finish) json.key("finish").string(name_of(kFinishReasons, *event.finish));
  if (event.stop_id) json.key("stop_id").integer(*event.stop_id);
  if (event.finish == FinishReason::kError || event.finish == FinishReason::kGivenUp) {
    json.key("code").string(name_of(kErrorCodes, event.code));
  }
  if (!event.error.empty()) json.key("error").string(event.error);
  json.end_object();
}

void write_update(JsonWriter& json, const RequestUpdate& update) {
  json.begin_object().key("id").digits(update.id.value);
  if (update.prompt) {
    json.key("prompt").begin_object();
    json.key("n_prompt_tokens").integer(update.prompt->n_prompt_tokens);
    json.key("n_cached_tokens").integer(update.prompt->n_cached_tokens);
    if (!update.prompt->prompt_logprobs.empty()) {
      write_logprobs(json, "prompt_logprobs", update.prompt->prompt_logprobs);
    }
    json.end_object();
  }
  json.key("events").begin_array();
  for (const TokenEvent& event : update.events) write_event(json, event);
  json.end_array().end_object();
}

void write_state(JsonWriter& json, const EngineState& state) {
  json.key("state").begin_object();
  json.key("alive").boolean(state.alive).key("ready").boolean(state.ready);
  if (!state.reason.empty()) json.key("reason").string(state.reason);
  json.key("n_running").integer(state.n_running).key("n_waiting").integer(state.n_waiting);
  json.key("blocks_free").integer(state.blocks_free).key("blocks_used").integer(state.blocks_used);
  json.key("blocks_cached").integer(state.blocks_cached);
  json.key("blocks_leased").integer(state.blocks_leased);
  json.end_object();
}

std::string line_of(JsonWriter& json) { return json.take().append("\n"); }

}  // namespace

std::string write_attach(const AttachRequest& request) {
  JsonWriter json;
  json.begin_object().key("router").string(request.router).end_object();
  return json.take();
}

std::string write_prep_recv(const InSession<PrepareReceive>& request) {
  const PrepareReceive& message = request.message;
  JsonWriter json;
  begin(json, request.session);
  write_ids(json, "prompt", message.prompt);
  json.key("end").integer(message.end);
  json.key("match_prefix").boolean(message.match_prefix);
  if (message.lease_ns > 0) json.key("lease_ns").integer(message.lease_ns);
  if (!message.label.empty()) json.key("label").string(message.label);
  json.end_object();
  return json.take();
}

std::string write_remote_send(const InSession<RemoteSend>& request) {
  const RemoteSend& message = request.message;
  JsonWriter json;
  begin(json, request.session);
  json.key("id").digits(message.id.value);
  write_ids(json, "prompt", message.prompt);
  json.key("begin").integer(message.begin).key("end").integer(message.end);
  write_address(json, "to", message.to);
  write_optional(json, "n_prompt_logprobs", message.n_prompt_logprobs);
  json.key("priority").integer(message.priority);
  json.key("arrival_ns").integer(message.arrival_ns);
  if (!message.label.empty()) json.key("label").string(message.label);
  json.end_object();
  return json.take();
}

std::string write_start_generate(const InSession<TokenRequest>& request) {
  const TokenRequest& message = request.message;
  JsonWriter json;
  begin(json, request.session);
  json.key("id").digits(message.id.value);
  write_ids(json, "prompt", message.prompt);
  write_sampling(json, message.sampling);
  json.key("n_choices").integer(message.n_choices);
  json.key("first_choice").integer(message.first_choice);
  json.key("max_tokens").integer(message.max_tokens);
  json.key("min_tokens").integer(message.min_tokens);
  write_ids(json, "eos_ids", message.eos_ids);
  write_ids(json, "stop_ids", message.stop_ids);
  json.key("ignore_eos").boolean(message.ignore_eos);
  write_optional(json, "n_logprobs", message.n_logprobs);
  write_optional(json, "n_prompt_logprobs", message.n_prompt_logprobs);
  json.key("priority").integer(message.priority);
  json.key("arrival_ns").integer(message.arrival_ns);
  if (!message.label.empty()) json.key("label").string(message.label);
  if (message.leased) {
    json.key("leased").begin_object();
    json.key("lease").digits(message.leased->lease.value);
    json.key("begin").integer(message.leased->begin).end_object();
  }
  if (!message.output.empty()) write_ids(json, "output", message.output);
  json.end_object();
  return json.take();
}

std::string write_release(const InSession<Release>& request) {
  JsonWriter json;
  begin(json, request.session);
  if (request.message.lease) json.key("lease").digits(request.message.lease->value);
  if (request.message.request) json.key("request").digits(request.message.request->value);
  write_optional(json, "choice", request.message.choice);
  json.end_object();
  return json.take();
}

std::string write_attached(const Attached& attached) {
  const EngineInfo& info = attached.engine;
  JsonWriter json;
  json.begin_object().key("session").string(attached.session);
  json.key("engine").begin_object();
  json.key("role").string(name(info.role));
  json.key("incarnation").digits(info.incarnation);
  json.key("pid").integer(info.pid);
  write_ids(json, "cpus", info.cpus);
  json.key("context_tokens").integer(info.context_tokens).key("n_vocab").integer(info.n_vocab);
  json.key("n_blocks").integer(info.n_blocks).key("block_tokens").integer(info.block_tokens);
  json.key("max_batch").integer(info.max_batch);
  json.key("prefill_min_tokens").integer(info.prefill_min_tokens);
  json.key("layout_hash").digits(info.layout_hash);
  json.key("in_world").boolean(info.in_world);
  json.end_object().end_object();
  return line_of(json);
}

std::string write_frame(const Frame& frame) {
  JsonWriter json;
  json.begin_object().key("updates").begin_array();
  for (const RequestUpdate& update : frame.updates) write_update(json, update);
  json.end_array();
  write_state(json, frame.state);
  json.end_object();
  return line_of(json);
}

std::string write_prepared(const PreparedReceive& prepared, uint64_t incarnation) {
  JsonWriter json;
  json.begin_object().key("incarnation").digits(incarnation);
  json.key("lease").digits(prepared.lease.value);
  json.key("n_matched").integer(prepared.n_matched);
  json.key("lease_ns").integer(prepared.lease_ns);
  write_address(json, "address", prepared.address);
  json.end_object();
  return json.take();
}

std::string write_sent(const SentKv& sent, uint64_t incarnation) {
  JsonWriter json;
  json.begin_object().key("incarnation").digits(incarnation);
  json.key("n_cached_tokens").integer(sent.n_cached_tokens).key("n_bytes").integer(sent.n_bytes);
  json.key("put_ns").integer(sent.put_ns).key("queue_ns").integer(sent.queue_ns);
  json.key("prefill_ns").integer(sent.prefill_ns);
  if (!sent.prompt_logprobs.empty()) {
    write_logprobs(json, "prompt_logprobs", sent.prompt_logprobs);
  }
  json.end_object();
  return json.take();
}

std::string write_done(uint64_t incarnation) {
  JsonWriter json;
  json.begin_object().key("incarnation").digits(incarnation).end_object();
  return json.take();
}

}  // namespace baton::api
