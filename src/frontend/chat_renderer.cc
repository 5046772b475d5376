#include "frontend/chat_renderer.h"

#include <nlohmann/json.hpp>

#include "text/chat_template.h"

namespace baton::frontend {
namespace {

using Json = nlohmann::ordered_json;

Result<std::string> render(const text::ChatTemplate& chat_template, const api::ChatPrompt& prompt) {
  Json messages = Json::array();
  for (const auto& message : prompt.messages) {
    Json object = {{"role", message.role}, {"content", message.content}};
    if (message.name) object["name"] = *message.name;
    messages.push_back(std::move(object));
  }
  const Json kwargs = prompt.template_kwargs.empty()
                          ? Json::object()
                          : Json::parse(prompt.template_kwargs, nullptr, false);
  if (!kwargs.is_object()) {
    return fail(ErrorCode::kInvalidArgument, "chat_template_kwargs must be a JSON object");
  }
  text::ChatInput input;
  input.messages = &messages;
  input.kwargs = &kwargs;
  input.add_generation_prompt = prompt.add_generation_prompt;
  input.continue_final_message = prompt.continue_final_message;
  return chat_template.render(input);
}

}  // namespace

ChatRenderer make_chat_renderer(std::shared_ptr<const text::ChatTemplate> chat_template) {
  if (!chat_template) return {};
  return [chat_template = std::move(chat_template)](const api::ChatPrompt& prompt) {
    return render(*chat_template, prompt);
  };
}

}  // namespace baton::frontend
