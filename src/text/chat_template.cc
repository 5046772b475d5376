#include "text/chat_template.h"

#include <nlohmann/json.hpp>

#include "jinja/json.h"
#include "jinja/unicode.h"

namespace baton::text {
namespace {

using Json = nlohmann::ordered_json;
using jinja::Value;

// Put behind the last message's content to find where the template prints its end: the content
// alone could also be found elsewhere, be empty, or be trimmed. The space at the end tells whether
// the template trims. The same trick, and mark, as in transformers' apply_chat_template().
constexpr std::string_view kMark = "CONTINUE_FINAL_MESSAGE_TAG ";

Value text_value(std::string_view text) { return jinja::make_string(nullptr, std::string(text)); }

/// Where the text of the last message ends: a string in `message`, which is changed to have kMark
/// there.
Status mark_end(Json& message) {
  Json* content =
      message.is_object() && message.contains("content") ? &message["content"] : nullptr;
  if (content != nullptr && content->is_array()) {
    // The last text part.
    Json* text = nullptr;
    for (Json& part : *content) {
      if (part.is_object() && part.contains("text")) text = &part["text"];
    }
    content = text;
  }
  if (content == nullptr || !content->is_string()) {
    return fail(ErrorCode::kInvalidArgument,
                "continue_final_message needs a last message whose content is text");
  }
  content->get_ref<std::string&>().append(kMark);
  return {};
}

/// A message that may quote the template, as one line that is not long and does no harm to a
/// terminal.
std::string printable(std::string_view message) {
  constexpr size_t kMaxShown = 200;
  std::string out;
  for (const char c : message.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte >= 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return out + (message.size() > kMaxShown ? "…" : "");
}

Result<std::string> cut_at_mark(std::string text) {
  const std::string_view bare = kMark.substr(0, kMark.size() - 1);
  const size_t at = text.rfind(bare);
  if (at == std::string::npos) {
    return fail(
        ErrorCode::kInvalidArgument,
        "continue_final_message: the chat template doesn't print the last message's content");
  }
  const bool is_trimmed = text.compare(at, kMark.size(), kMark) != 0;
  text.resize(at);
  if (is_trimmed) text.resize(jinja::strip_right(text, nullptr).size());
  return text;
}

Result<Value> convert(std::string_view name, const Json* json) {
  if (json == nullptr) return Value();
  auto value = jinja::from_json(*json);
  if (!value) value.error().message = fmt::format("'{}': {}", name, value.error().message);
  return value;
}

/// The last message open-ended, so that cut_at_mark() can find its end.
Result<Value> convert_messages(const ChatInput& input) {
  if (!input.continue_final_message) return convert("messages", input.messages);
  if (input.messages->empty()) {
    return fail(ErrorCode::kInvalidArgument, "continue_final_message needs at least one message");
  }
  Json messages = *input.messages;
  if (auto marked = mark_end(messages.back()); !marked) return tl::unexpected(marked.error());
  return convert("messages", &messages);
}

Status check(const ChatInput& input) {
  if (input.messages == nullptr || !input.messages->is_array()) {
    return fail(ErrorCode::kInvalidArgument, "'messages' must be a list");
  }
  if (input.kwargs != nullptr && !input.kwargs->is_object() && !input.kwargs->is_null()) {
    return fail(ErrorCode::kInvalidArgument, "'chat_template_kwargs' must be an object");
  }
  if (input.add_generation_prompt && input.continue_final_message) {
    return fail(ErrorCode::kInvalidArgument,
                "'add_generation_prompt' and 'continue_final_message' can't both be true");
  }
  return {};
}

}  // namespace

ChatTemplate::ChatTemplate(jinja::Template parsed, std::string bos_token, std::string eos_token)
    : template_(std::move(parsed)),
      bos_token_(std::move(bos_token)),
      eos_token_(std::move(eos_token)) {}

Result<ChatTemplate> ChatTemplate::create(std::string_view source, std::string bos_token,
                                          std::string eos_token) {
  auto parsed = jinja::Template::parse(source);
  if (!parsed) return fail(ErrorCode::kCorrupt, "{}", printable(parsed.error().message));
  return ChatTemplate(std::move(*parsed), std::move(bos_token), std::move(eos_token));
}

Result<std::string> ChatTemplate::render(const ChatInput& input) const {
  if (auto ok = check(input); !ok) return tl::unexpected(ok.error());
  auto messages = convert_messages(input);
  if (!messages) return tl::unexpected(messages.error());
  auto tools = convert("tools", input.tools);
  if (!tools) return tl::unexpected(tools.error());
  auto kwargs = convert("chat_template_kwargs", input.kwargs);
  if (!kwargs) return tl::unexpected(kwargs.error());

  // Later ones win.
  jinja::Variables variables;
  variables.emplace_back("documents", Value());
  variables.emplace_back("bos_token", text_value(input.bos_token.value_or(bos_token_)));
  variables.emplace_back("eos_token", text_value(input.eos_token.value_or(eos_token_)));
  if (const jinja::Dict* dict = kwargs->as_dict()) {
    for (const auto& [name, value] : dict->entries) variables.emplace_back(name.text(), value);
  }
  variables.emplace_back("messages", std::move(*messages));
  variables.emplace_back("tools", std::move(*tools));
  variables.emplace_back("add_generation_prompt", Value(input.add_generation_prompt));

  auto text = template_.render(variables, {input.now});
  if (!text) return text;  // its message is complete: the author's, or with the line
  return input.continue_final_message ? cut_at_mark(std::move(*text)) : std::move(text);
}

}  // namespace baton::text
