#include <nlohmann/json.hpp>
#include <optional>

#include "api/field_reader.h"
#include "api/parse.h"

namespace baton::api {
namespace {

constexpr const char* kTemplateKwargs = "chat_template_kwargs";

/// "content": a string, or a list of {"type":"text","text":…} whose texts are joined by newlines
/// (as vLLM does for templates that want a string).
void read_content(FieldReader& reader, ChatMessage& message) {
  const nlohmann::json* content = reader.find("content");
  if (content == nullptr) return reader.fail("content", "'{}' is missing", reader.path("content"));
  if (content->is_string()) {
    message.content = content->get<std::string>();
    return;
  }
  if (!content->is_array()) {
    return reader.fail("content", "'{}' must be a string or a list of text parts, not {}",
                       reader.path("content"), describe(*content));
  }
  for (size_t i = 0; i < content->size(); ++i) {
    const nlohmann::json& part = (*content)[i];
    const std::string prefix = fmt::format("{}[{}]", reader.path("content"), i);
    if (!part.is_object()) {
      return reader.fail(
          invalid(prefix, "'{}' must be an object, not {}", prefix, describe(part)).value());
    }
    FieldReader inner(part, prefix + ".");
    const auto type = inner.string("type");
    if (type != "text" && !inner.failed()) {
      inner.fail("type", "'{}' must be \"text\"; other content parts are not supported",
                 inner.path("type"));
    }
    const auto text = inner.string("text");
    if (!text && !inner.failed()) inner.fail("text", "'{}' is missing", inner.path("text"));
    if (inner.failed()) return reader.fail(std::move(inner.error().value()));
    if (i > 0) message.content += '\n';
    message.content += *text;
  }
}

ChatMessage read_message(FieldReader& reader) {
  ChatMessage message;
  const std::string role = reader.string("role").value_or("");
  if (role == "tool" || role == "function") {
    reader.fail("role", "'{}': the role '{}' is not supported", reader.path("role"), role);
  } else if (role != "system" && role != "developer" && role != "user" && role != "assistant") {
    reader.fail("role", "'{}' must be system, developer, user or assistant", reader.path("role"));
  }
  // OpenAI's newer name for the system role; templates of open models know only the old one.
  message.role = role == "developer" ? "system" : role;
  message.name = reader.string("name");
  for (const char* key : {"tool_calls", "function_call", "audio", "refusal", "tool_call_id"}) {
    const nlohmann::json* value = reader.find(key);
    if (value != nullptr && !(value->is_array() && value->empty())) {
      reader.fail(key, "'{}' is not supported", reader.path(key));
    }
  }
  read_content(reader, message);
  return message;
}

/// The object chat_template_kwargs of `body` (which is known to be valid) as text, its keys in the
/// client's order; nullopt if it has too many values. Beyond those nothing is kept, as the time
/// that such an object takes grows with the square of its size.
std::optional<std::string> ordered_kwargs(std::string_view body, int max_values) {
  using Json = nlohmann::ordered_json;
  using Event = Json::parse_event_t;
  bool inside = false;
  int n_values = 0;
  const auto keep = [&](int depth, Event event, const Json& value) {
    if (event == Event::key && depth == 1) {
      inside = value.get_ref<const std::string&>() == kTemplateKwargs;
      return inside;
    }
    if (!inside || event == Event::object_end || event == Event::array_end) return true;
    if (event != Event::key) ++n_values;
    return n_values <= max_values;
  };
  const Json json = Json::parse(body, keep);
  if (n_values > max_values) return std::nullopt;
  return json.at(kTemplateKwargs).dump();
}

void read_template_kwargs(FieldReader& reader, std::string_view body, const RequestLimits& limits,
                          ChatPrompt& prompt) {
  prompt.template_kwargs = "{}";
  const nlohmann::json* kwargs = reader.find(kTemplateKwargs);
  if (kwargs == nullptr) return;
  if (!kwargs->is_object()) {
    return reader.fail(kTemplateKwargs, "'chat_template_kwargs' must be an object, not {}",
                       describe(*kwargs));
  }
  auto text = ordered_kwargs(body, limits.max_template_values);
  if (!text) {
    return reader.fail(kTemplateKwargs, "'chat_template_kwargs' has more than {} values",
                       limits.max_template_values);
  }
  prompt.template_kwargs = std::move(*text);
}

}  // namespace

ChatPrompt read_chat_prompt(FieldReader& reader, std::string_view body,
                            const RequestLimits& limits) {
  ChatPrompt prompt;
  const nlohmann::json* messages = reader.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    reader.fail("messages", "'messages' must be a non-empty list of messages");
    return prompt;
  }
  for (size_t i = 0; i < messages->size() && !reader.failed(); ++i) {
    const std::string prefix = fmt::format("messages[{}]", i);
    const nlohmann::json& message = (*messages)[i];
    if (!message.is_object()) {
      reader.fail(prefix, "'{}' must be an object, not {}", prefix, describe(message));
      return prompt;
    }
    FieldReader inner(message, prefix + ".");
    prompt.messages.push_back(read_message(inner));
    if (inner.failed()) reader.fail(std::move(inner.error().value()));
  }
  prompt.continue_final_message = reader.boolean("continue_final_message").value_or(false);
  const auto add = reader.boolean("add_generation_prompt");
  prompt.add_generation_prompt = add.value_or(!prompt.continue_final_message);
  if (prompt.continue_final_message && prompt.add_generation_prompt) {
    reader.fail("add_generation_prompt",
                "'add_generation_prompt' and 'continue_final_message' can't both be true");
  }
  read_template_kwargs(reader, body, limits, prompt);
  return prompt;
}

ApiResult<ChatRequest> parse_chat_request(std::string_view body, const RequestLimits& limits) {
  auto json = parse_object(body, limits);
  if (!json) return tl::unexpected(std::move(json.error()));
  FieldReader reader(**json);
  ChatRequest out;
  out.prompt = read_chat_prompt(reader, body, limits);
  out.params = read_generation_params(reader, limits);
  const bool logprobs = reader.boolean("logprobs").value_or(false);
  const auto top = reader.integer("top_logprobs", {0, limits.max_logprobs});
  if (top && !logprobs) {
    reader.fail("top_logprobs", "'top_logprobs' is only allowed with 'logprobs': true");
  }
  if (logprobs) out.params.n_logprobs = static_cast<int>(top.value_or(0));
  if (reader.boolean("echo").value_or(false))
    reader.fail("echo", "'echo' is not supported in chat");
  if (out.params.max_tokens == 0) {
    reader.fail(reader.find("max_tokens") != nullptr ? "max_tokens" : "max_completion_tokens",
                "'max_tokens' must be at least 1");
  }
  if (reader.failed()) return reader.error();
  return out;
}

}  // namespace baton::api
