// A model's chat template: messages → the text that is tokenised. Over src/jinja; the variables are
// those that Hugging Face transformers gives to a template.
#pragma once

#include <ctime>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "jinja/template.h"

namespace baton::text {

/// What one rendering is made from. The JSON must outlive the call; it is ordered because templates
/// show objects (tools, arguments) in the order of the request.
struct ChatInput {
  const nlohmann::ordered_json* messages = nullptr;  ///< a list; must be given
  const nlohmann::ordered_json* tools = nullptr;     ///< null = none
  /// An object of further variables (chat_template_kwargs), null = none. They can replace
  /// bos_token, eos_token and documents, but no other variable of this struct.
  const nlohmann::ordered_json* kwargs = nullptr;
  bool add_generation_prompt = true;
  /// Leave the last message open: the text ends with its content. Excludes add_generation_prompt.
  bool continue_final_message = false;
  std::optional<std::string> bos_token;  ///< instead of the template's own
  std::optional<std::string> eos_token;
  std::optional<std::tm> now;  ///< what strftime_now() reads; absent: the local time
};

/// Parsed once; cheap to copy. Immutable: render() may be called by many threads at once.
class ChatTemplate {
 public:
  /// kCorrupt for what jinja::Template::parse refuses. A model without a template has
  /// no ChatTemplate; there is no default one, since a wrong one only looks as if it worked.
  [[nodiscard]] static Result<ChatTemplate> create(std::string_view source, std::string bos_token,
                                                   std::string eos_token);

  /// kInvalidArgument for everything that goes wrong, as it depends on the client's messages: the
  /// exact message of the template's raise_exception(), or "chat template, line N: …".
  [[nodiscard]] Result<std::string> render(const ChatInput& input) const;

 private:
  ChatTemplate(jinja::Template parsed, std::string bos_token, std::string eos_token);

  jinja::Template template_;
  std::string bos_token_;
  std::string eos_token_;
};

}  // namespace baton::text
