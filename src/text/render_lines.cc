#include "text/render_lines.h"

#include <ctime>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>

namespace baton::text {
namespace {

using Json = nlohmann::ordered_json;

/// Null if the field is absent or null.
const Json* find(const Json& line, const char* name) {
  const auto at = line.find(name);
  return at == line.end() || at->is_null() ? nullptr : &*at;
}

Result<bool> flag(const Json& line, const char* name, bool fallback) {
  const Json* value = find(line, name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return fail(ErrorCode::kInvalidArgument, "'{}' must be a bool", name);
  return value->get<bool>();
}

Result<std::optional<std::string>> text(const Json& line, const char* name) {
  const Json* value = find(line, name);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return fail(ErrorCode::kInvalidArgument, "'{}' must be a string", name);
  return std::optional(value->get<std::string>());
}

Result<std::optional<std::tm>> time(const Json& line) {
  auto shown = text(line, "now");
  if (!shown) return tl::unexpected(shown.error());
  if (!*shown) return std::optional<std::tm>();
  std::tm parsed{};
  const char* const end = strptime((*shown)->c_str(), "%Y-%m-%dT%H:%M:%S", &parsed);
  if (end == nullptr || *end != '\0') {
    return fail(ErrorCode::kInvalidArgument, "'now' must be a time like \"2026-01-15T12:00:00\"");
  }
  parsed.tm_isdst = -1;
  // For the day of the week and of the year. Not for the values given: a time that daylight saving
  // skips must stay as it is.
  std::tm completed = parsed;
  if (std::mktime(&completed) != -1) {
    parsed.tm_wday = completed.tm_wday;
    parsed.tm_yday = completed.tm_yday;
    parsed.tm_isdst = completed.tm_isdst;
    parsed.tm_gmtoff = completed.tm_gmtoff;
    parsed.tm_zone = completed.tm_zone;
  }
  return std::optional(parsed);
}

Result<std::string> answer(const Json& line, const ChatTemplate& chat_template) {
  if (line.is_discarded())
    return fail(ErrorCode::kInvalidArgument, "the line is not valid JSON in UTF-8");
  if (!line.is_object()) return fail(ErrorCode::kInvalidArgument, "the line must be a JSON object");
  ChatInput input;
  input.messages = find(line, "messages");
  input.tools = find(line, "tools");
  input.kwargs = find(line, "chat_template_kwargs");
  const auto goes_on = flag(line, "continue_final_message", false);
  if (!goes_on) return tl::unexpected(goes_on.error());
  input.continue_final_message = *goes_on;
  const auto prompt = flag(line, "add_generation_prompt", !*goes_on);
  if (!prompt) return tl::unexpected(prompt.error());
  input.add_generation_prompt = *prompt;
  auto bos = text(line, "bos_token");
  if (!bos) return tl::unexpected(bos.error());
  input.bos_token = std::move(*bos);
  auto eos = text(line, "eos_token");
  if (!eos) return tl::unexpected(eos.error());
  input.eos_token = std::move(*eos);
  const auto now = time(line);
  if (!now) return tl::unexpected(now.error());
  input.now = *now;
  return chat_template.render(input);
}

}  // namespace

void render_lines(std::istream& in, std::ostream& out, const ChatTemplate& chat_template) {
  for (std::string line; std::getline(in, line);) {
    const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    auto result = answer(parsed, chat_template);
    Json shown;
    if (result) {
      shown["text"] = std::move(*result);
    } else {
      shown["error"] = std::move(result.error().message);
    }
    out << shown.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  }
  out.flush();
}

}  // namespace baton::text
