#include "frontend/plan.h"

#include <algorithm>
#include <utility>

namespace baton::frontend {
namespace {

using api::invalid;

/// max_tokens of a completion that doesn't say (OpenAI's default).
constexpr int64_t kCompletionMaxTokens = 16;

/// What differs between the two routes in tokenising and checking one prompt.
struct PromptRules {
  const char* param;
  bool add_special;
  std::optional<int64_t> default_max_tokens;  ///< none: the rest of the context
};

/// Checks prompt + max_tokens against the context; sets prompt.max_tokens.
api::ApiResult<void> fit(PlannedPrompt& prompt, const api::GenerationParams& params,
                         const PromptRules& rules, const ModelCard& card) {
  const auto n_prompt = static_cast<int64_t>(prompt.tokens.size());
  if (n_prompt == 0) return invalid(rules.param, "'{}' is empty: it has no tokens", rules.param);
  const int64_t room = card.max_model_len - n_prompt;
  // A default never makes a request fail that has room for one token.
  const int64_t fallback = std::max<int64_t>(
      1, rules.default_max_tokens ? std::min(room, *rules.default_max_tokens) : room);
  const int64_t max_tokens = params.max_tokens.value_or(fallback);
  if (max_tokens > room) {
    return invalid(params.max_tokens && room > 0 ? "max_tokens" : rules.param,
                   "the context is {} tokens, but the prompt has {} and max_tokens is {}: "
                   "shorten the prompt or ask for less",
                   card.max_model_len, n_prompt, max_tokens);
  }
  if (params.min_tokens > max_tokens) {
    return invalid("min_tokens", "'min_tokens' is {}, more than 'max_tokens' {}", params.min_tokens,
                   max_tokens);
  }
  prompt.max_tokens = static_cast<int>(max_tokens);
  return {};
}

/// Tokens of a text; refuses what can't fit before the tokenizer spends time on it.
api::ApiResult<std::vector<TokenId>> tokenize(const std::string& text, const TextCodec& codec,
                                              const PromptRules& rules, const ModelCard& card) {
  const size_t at_least = text.size() / std::max<size_t>(1, codec.max_piece_bytes());
  if (at_least > static_cast<size_t>(card.max_model_len)) {
    return invalid(rules.param,
                   "the context is {} tokens, but '{}' has {} bytes, which are {} tokens at least",
                   card.max_model_len, rules.param, text.size(), at_least);
  }
  auto tokens = codec.encode(text, rules.add_special);
  if (!tokens) {
    api::ApiError error = api::from_error(tokens.error());
    error.param = rules.param;
    return tl::unexpected(std::move(error));
  }
  return std::move(*tokens);
}

}  // namespace

api::ApiResult<void> check_model(const std::optional<std::string>& model, const ModelCard& card) {
  if (!model || card.has_name(*model)) return {};
  return tl::unexpected(api::model_not_found(*model, card.names.front()));
}

api::ApiResult<GenerationPlan> plan_completion(api::CompletionRequest request,
                                               const TextCodec& codec, const ModelCard& card) {
  GenerationPlan plan{
      .params = std::move(request.params), .chat = false, .echo = request.echo, .prompts = {}};
  const PromptRules rules{"prompt", plan.params.add_special_tokens.value_or(true),
                          kCompletionMaxTokens};
  for (api::Prompt& input : request.prompts) {
    PlannedPrompt prompt;
    if (auto* text = std::get_if<std::string>(&input)) {
      auto tokens = tokenize(*text, codec, rules, card);
      if (!tokens) return tl::unexpected(std::move(tokens.error()));
      prompt.tokens = std::move(*tokens);
      if (plan.echo) prompt.text = std::move(*text);
    } else {
      prompt.tokens = std::move(std::get<std::vector<TokenId>>(input));
      if (plan.echo)
        prompt.text = codec.decode(
            prompt.tokens, {.skip_special = plan.params.skip_special_tokens, .at_start = true});
    }
    if (auto ok = fit(prompt, plan.params, rules, card); !ok) {
      return tl::unexpected(std::move(ok.error()));
    }
    plan.prompts.push_back(std::move(prompt));
  }
  return plan;
}

api::ApiResult<GenerationPlan> plan_chat(api::ChatRequest request, const TextCodec& codec,
                                         const ModelCard& card) {
  GenerationPlan plan{
      .params = std::move(request.params), .chat = true, .echo = false, .prompts = {}};
  const PromptRules rules{"messages", plan.params.add_special_tokens.value_or(false), std::nullopt};
  auto text = render_chat(request.prompt, codec);
  if (!text) return tl::unexpected(std::move(text.error()));
  auto tokens = tokenize(*text, codec, rules, card);
  if (!tokens) return tl::unexpected(std::move(tokens.error()));
  PlannedPrompt prompt;
  prompt.tokens = std::move(*tokens);
  if (auto ok = fit(prompt, plan.params, rules, card); !ok) {
    return tl::unexpected(std::move(ok.error()));
  }
  plan.prompts.push_back(std::move(prompt));
  return plan;
}

api::ApiResult<std::string> render_chat(const api::ChatPrompt& prompt, const TextCodec& codec) {
  auto text = codec.render(prompt);
  if (!text) {
    api::ApiError error = api::from_error(text.error());
    error.param = "messages";
    return tl::unexpected(std::move(error));
  }
  return std::move(*text);
}

}  // namespace baton::frontend
