// Fuzzing of the whole interpreter: the bytes are a template, rendered with a fixed conversation.
// No input may crash, leak, take long or much memory; the text of a success is valid UTF-8.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "jinja/json.h"
#include "jinja/template.h"
#include "jinja/unicode.h"

namespace {

using namespace baton;

const jinja::Variables& variables() {
  static const jinja::Variables values = [] {
    const auto json = nlohmann::ordered_json::parse(R"({
      "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße 😀"},
                   {"role": "assistant", "content": null, "tool_calls": [{"function":
                     {"name": "f", "arguments": {"x": 1.5, "y": [true, -7]}}}]}],
      "tools": [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": {}}}}],
      "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");
    jinja::Variables made;
    for (const auto& [name, value] : json.items())
      made.emplace_back(name, jinja::from_json(value).value());
    return made;
  }();
  return values;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  jinja::Limits limits;
  limits.max_steps = 100'000;
  limits.max_output_bytes = size_t{1} << 20;
  limits.max_value_bytes = size_t{8} << 20;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = jinja::Template::parse(source, limits);
  if (!parsed) {
    BATON_CHECK(!parsed.error().message.empty());
    return 0;
  }
  const auto text = parsed->render(variables());
  if (text) BATON_CHECK(jinja::is_valid_utf8(*text));
  return 0;
}
