// What the router reads.
#include <nlohmann/json.hpp>

#include "api/microserving.h"
#include "api/microserving_names.h"
#include "api/wire_reader.h"

namespace baton::api {
namespace {

constexpr size_t kMaxErrorBytes = 2048;

/// An engine may say more than a client may: log probabilities of a long prompt.
RequestLimits answer_limits() {
  RequestLimits limits;
  limits.max_containers = 1 << 22;
  limits.max_values = 1 << 25;
  return limits;
}

/// Ours, as it is about a peer.
tl::unexpected<Error> corrupt(const ApiError& error) {
  return fail(ErrorCode::kCorrupt, "wrong answer of the engine: {}", error.message);
}

/// `read` with a reader of the object in `text`.
template <typename T, typename Read>
Result<T> read_answer(std::string_view text, Read read) {
  const auto json = parse_object(text, answer_limits());
  if (!json) return corrupt(json.error());
  WireReader reader(**json);
  T out = read(reader);
  if (reader.failed()) return corrupt(reader.error().value());
  return out;
}

template <typename E, size_t n>
E read_name(WireReader& reader, std::string_view key, const Names<E, n>& names) {
  const auto text = reader.fields().string(key);
  const auto value = text ? value_of(names, *text) : std::nullopt;
  if (value) return *value;
  std::string all;
  for (const auto& [one, name] : names) all.append(all.empty() ? "" : ", ").append(name);
  reader.fields().fail(key, "'{}' must be one of {}", reader.fields().path(key), all);
  return names.back().first;
}

EngineInfo read_info(const nlohmann::json& object, WireReader& parent) {
  WireReader reader(object, "engine.");
  EngineInfo out;
  out.role = read_name(reader, "role", kRoles);
  out.incarnation = reader.digits("incarnation");
  out.pid = reader.integer("pid", {0, kInt32Max});
  out.cpus = reader.ids("cpus", static_cast<int>(kInt32Max));
  out.context_tokens = reader.integer("context_tokens", {1, kInt32Max});
  out.n_vocab = reader.integer("n_vocab", {1, kInt32Max});
  out.n_blocks = reader.integer("n_blocks", {1, kInt32Max});
  out.block_tokens = reader.integer("block_tokens", {1, kInt32Max});
  out.max_batch = reader.integer("max_batch", {1, kInt32Max});
  out.prefill_min_tokens = reader.integer("prefill_min_tokens", {0, kInt32Max});
  out.layout_hash = reader.digits("layout_hash");
  out.in_world = reader.boolean("in_world");
  parent.join(reader);
  return out;
}

EngineState read_state(const nlohmann::json& object, WireReader& parent) {
  WireReader reader(object, "state.");
  EngineState out;
  out.alive = reader.boolean("alive");
  out.ready = reader.boolean("ready");
  out.reason = reader.fields().string("reason").value_or("");
  out.n_running = reader.integer("n_running", {0, kInt32Max});
  out.n_waiting = reader.integer("n_waiting", {0, kInt32Max});
  out.blocks_free = reader.integer("blocks_free", {0, kInt32Max});
  out.blocks_used = reader.integer("blocks_used", {0, kInt32Max});
  out.blocks_cached = reader.integer("blocks_cached", {0, kInt32Max});
  out.blocks_leased = reader.integer("blocks_leased", {0, kInt32Max});
  parent.join(reader);
  return out;
}

TokenEvent read_event(WireReader& reader, int n_vocab) {
  TokenEvent out;
  out.choice = reader.integer("choice", {0, kMaxChoices - 1});
  if (auto tokens = reader.fields().token_ids("tokens", n_vocab)) out.tokens = std::move(*tokens);
  out.logprobs = reader.optional_logprobs("logprobs", n_vocab);
  if (!out.logprobs.empty() && out.logprobs.size() != out.tokens.size()) {
    reader.fields().fail("logprobs", "'{}' has {} entries for {} tokens",
                         reader.fields().path("logprobs"), out.logprobs.size(), out.tokens.size());
  }
  if (reader.fields().find("finish") != nullptr) {
    out.finish = read_name(reader, "finish", kFinishReasons);
  }
  if (reader.fields().find("stop_id") != nullptr) {
    out.stop_id = reader.integer("stop_id", {0, n_vocab - 1});
  }
  if (reader.fields().find("code") != nullptr) out.code = read_name(reader, "code", kErrorCodes);
  out.error = reader.fields().string("error").value_or("");
  return out;
}

PromptInfo read_prompt_info(const nlohmann::json& object, WireReader& parent, int n_vocab) {
  WireReader reader(object, parent.fields().path("prompt."));
  PromptInfo out;
  out.n_prompt_tokens = reader.integer("n_prompt_tokens", {0, kInt32Max});
  out.n_cached_tokens = reader.integer("n_cached_tokens", {0, out.n_prompt_tokens});
  out.prompt_logprobs = reader.optional_logprobs("prompt_logprobs", n_vocab);
  if (out.prompt_logprobs.size() > static_cast<size_t>(out.n_prompt_tokens)) {
    reader.fields().fail("prompt_logprobs", "'{}' has {} entries for {} tokens",
                         reader.fields().path("prompt_logprobs"), out.prompt_logprobs.size(),
                         out.n_prompt_tokens);
  }
  parent.join(reader);
  return out;
}

/// Each element of the array, which must be an object, with a reader of its own. What is read of a
/// wrong one doesn't count.
template <typename Read>
void read_objects(WireReader& parent, std::string_view key, Read read) {
  const nlohmann::json* array = parent.array(key);
  if (array == nullptr) return;
  for (size_t i = 0; i < array->size(); ++i) {
    const nlohmann::json& object = (*array)[i];
    if (object.is_object()) {
      WireReader reader(object);
      read(reader);
      if (!reader.failed()) continue;
    }
    // Once more, now for a message with the whole path: frames are too many to make paths for all.
    const std::string path = fmt::format("{}[{}]", parent.fields().path(key), i);
    if (!object.is_object()) {
      return parent.fields().fail(key, "'{}' must be an object, not {}", path, describe(object));
    }
    WireReader reader(object, path + ".");
    read(reader);
    return parent.join(reader);
  }
}

RequestUpdate read_update(WireReader& reader, int n_vocab) {
  RequestUpdate out;
  out.id = RequestId{reader.digits("id")};
  if (reader.fields().find("prompt") != nullptr) {
    const nlohmann::json* prompt = reader.object("prompt");
    if (prompt != nullptr) out.prompt = read_prompt_info(*prompt, reader, n_vocab);
  }
  read_objects(reader, "events",
               [&](WireReader& event) { out.events.push_back(read_event(event, n_vocab)); });
  return out;
}

}  // namespace

Result<Attached> read_attached(std::string_view line) {
  return read_answer<Attached>(line, [](WireReader& reader) {
    Attached out;
    out.session = reader.string("session");
    if (const nlohmann::json* engine = reader.object("engine")) {
      out.engine = read_info(*engine, reader);
    }
    return out;
  });
}

Result<Frame> read_frame(std::string_view line, int n_vocab) {
  return read_answer<Frame>(line, [&](WireReader& reader) {
    Frame out;
    read_objects(reader, "updates",
                 [&](WireReader& update) { out.updates.push_back(read_update(update, n_vocab)); });
    if (const nlohmann::json* state = reader.object("state")) {
      out.state = read_state(*state, reader);
    }
    return out;
  });
}

Result<PreparedReceive> read_prepared(std::string_view body) {
  return read_answer<PreparedReceive>(body, [](WireReader& reader) {
    PreparedReceive out;
    out.lease = LeaseId{reader.digits("lease")};
    out.n_matched = reader.integer("n_matched", {0, kInt32Max});
    out.lease_ns = reader.integer64("lease_ns", {0, kInt64Max});
    out.address = reader.address("address");
    return out;
  });
}

Result<SentKv> read_sent(std::string_view body, int n_vocab) {
  return read_answer<SentKv>(body, [&](WireReader& reader) {
    SentKv out;
    out.n_cached_tokens = reader.integer("n_cached_tokens", {0, kInt32Max});
    out.n_bytes = reader.integer64("n_bytes", {0, kInt64Max});
    out.put_ns = reader.integer64("put_ns", {0, kInt64Max});
    out.queue_ns = reader.integer64("queue_ns", {0, kInt64Max});
    out.prefill_ns = reader.integer64("prefill_ns", {0, kInt64Max});
    out.prompt_logprobs = reader.optional_logprobs("prompt_logprobs", n_vocab);
    return out;
  });
}

Result<uint64_t> read_incarnation(std::string_view body) {
  return read_answer<uint64_t>(body,
                               [](WireReader& reader) { return reader.digits("incarnation"); });
}

Error read_error(int status, std::string_view body) {
  Error out{ErrorCode::kInternal, fmt::format("HTTP status {}", status), false};
  if (const auto json = parse_object(body, {})) {
    const auto error = (*json)->find("error");
    if (error != (*json)->end() && error->is_object()) {
      FieldReader fields(*error);
      if (auto message = fields.string("message")) {
        message->resize(std::min(message->size(), kMaxErrorBytes));
        out.message = std::move(*message);
      }
    }
  }
  if (status == 400) out.code = ErrorCode::kInvalidArgument;
  if (status == 404) out.code = ErrorCode::kNotFound;
  if (status == 429) out.code = ErrorCode::kExhausted;
  if (status == 409 || status >= 500) out.code = ErrorCode::kUnavailable;
  out.retryable = status == 429 || status == 503;
  return out;
}

}  // namespace baton::api
