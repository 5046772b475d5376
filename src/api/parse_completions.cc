#include <nlohmann/json.hpp>

#include "api/field_reader.h"
#include "api/parse.h"

namespace baton::api {
namespace {

constexpr const char* kPromptShapes =
    "'prompt' must be a non-empty string, a list of those, a list of token ids or a list of those";

/// One prompt: a string or a list of token ids.
ApiResult<Prompt> read_prompt(const nlohmann::json& value, const std::string& param, int n_vocab) {
  if (value.empty() || (value.is_string() && value.get_ref<const std::string&>().empty())) {
    return invalid("prompt", "'{}' is empty", param);
  }
  if (value.is_string()) return Prompt(value.get<std::string>());
  auto ids = read_token_ids(value, param, n_vocab);
  if (!ids) {
    ids.error().param = "prompt";
    return tl::unexpected(std::move(ids.error()));
  }
  return Prompt(std::move(*ids));
}

ApiResult<std::vector<Prompt>> read_prompts(const nlohmann::json* prompt,
                                            const RequestLimits& limits) {
  if (prompt == nullptr) return invalid("prompt", "'prompt' is missing");
  const bool packed = prompt->is_binary();  // ids: see parse_object()
  if (!prompt->is_string() && !prompt->is_array() && !packed) {
    return invalid("prompt", "{}, not {}", kPromptShapes, describe(*prompt));
  }
  std::vector<Prompt> out;
  const bool one = packed || prompt->is_string() || prompt->empty() || prompt->front().is_number();
  if (one) {
    auto single = read_prompt(*prompt, "prompt", limits.n_vocab);
    if (!single) return tl::unexpected(std::move(single.error()));
    out.push_back(std::move(*single));
    return out;
  }
  if (prompt->size() > static_cast<size_t>(limits.max_prompts)) {
    return invalid("prompt", "'prompt' has {} entries, at most {} are supported", prompt->size(),
                   limits.max_prompts);
  }
  const auto kind = prompt->front().type();
  for (size_t i = 0; i < prompt->size(); ++i) {
    const nlohmann::json& value = (*prompt)[i];
    if (value.type() != kind || !(value.is_string() || value.is_array())) {
      return invalid("prompt", "{}; entry {} is {}", kPromptShapes, i, describe(value));
    }
    auto next = read_prompt(value, fmt::format("prompt[{}]", i), limits.n_vocab);
    if (!next) return tl::unexpected(std::move(next.error()));
    out.push_back(std::move(*next));
  }
  return out;
}

}  // namespace

ApiResult<CompletionRequest> parse_completion_request(std::string_view body,
                                                      const RequestLimits& limits) {
  auto json = parse_object(body, limits);
  if (!json) return tl::unexpected(std::move(json.error()));
  FieldReader reader(**json);
  CompletionRequest out;
  auto prompts = read_prompts(reader.find("prompt"), limits);
  if (!prompts) {
    reader.fail(std::move(prompts.error()));
  } else {
    out.prompts = std::move(*prompts);
  }
  out.params = read_generation_params(reader, limits);
  out.echo = reader.boolean("echo").value_or(false);
  if (const auto n = reader.integer("logprobs", {0, limits.max_logprobs})) {
    out.params.n_logprobs = static_cast<int>(*n);
  }
  if (out.params.max_tokens == 0 && !out.echo) {
    reader.fail("max_tokens", "'max_tokens' must be at least 1 (0 only together with 'echo')");
  }
  if (static_cast<int64_t>(out.prompts.size()) * out.params.n > limits.max_prompts) {
    reader.fail("n", "{} prompts with n = {} make more than {} choices", out.prompts.size(),
                out.params.n, limits.max_prompts);
  }
  if (reader.failed()) return reader.error();
  return out;
}

}  // namespace baton::api
