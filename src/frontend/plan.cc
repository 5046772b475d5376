#include "frontend/plan.h"

#include <algorithm>
#include <utility>

namespace baton::frontend {
namespace {

using api::invalid;

/// max_tokens of a completion that doesn't say (OpenAI's default).
constexpr int64_t kCompletionMaxTokens = 16;

/// What every prompt of a request is tokenised and checked by.
struct PromptRules {
  const char* param;
  bool add_special;
  std::optional<int64_t> default_max_tokens;  ///< none: the rest of the context
  const api::GenerationParams& params;
  const ModelCard& card;
};

/// As asked, or the default for a prompt that leaves `room` in the context.
int64_t max_tokens_of(const PromptRules& rules, int64_t room) {
  // A default never makes a request fail that has room for one token.
  const int64_t fallback = std::max<int64_t>(
      1, rules.default_max_tokens ? std::min(room, *rules.default_max_tokens) : room);
  return rules.params.max_tokens.value_or(fallback);
}

/// Whether min_tokens forbids every token there is: stop ids and EOS can't be sampled before.
bool leaves_no_token(const api::GenerationParams& params, const ModelCard& card) {
  if (params.min_tokens == 0) return false;
  std::vector<TokenId> banned = params.stop_token_ids;
  banned.insert(banned.end(), card.eos_ids.begin(), card.eos_ids.end());
  if (banned.size() < static_cast<size_t>(card.n_vocab)) return false;
  std::sort(banned.begin(), banned.end());
  banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
  return banned.size() >= static_cast<size_t>(card.n_vocab);
}

/// Checks prompt + max_tokens against the context; sets prompt.max_tokens.
api::ApiResult<void> fit(PlannedPrompt& prompt, const PromptRules& rules) {
  const api::GenerationParams& params = rules.params;
  const ModelCard& card = rules.card;
  const auto n_prompt = static_cast<int64_t>(prompt.tokens.size());
  if (n_prompt == 0) return invalid(rules.param, "'{}' is empty: it has no tokens", rules.param);
  const int64_t room = card.max_model_len - n_prompt;
  const int64_t max_tokens = max_tokens_of(rules, room);
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
  if (leaves_no_token(params, card)) {
    return invalid(
        "stop_token_ids",
        "'min_tokens' is {}, but 'stop_token_ids' and the model's end of text are all of "
        "the vocabulary: no token can come first",
        params.min_tokens);
  }
  prompt.max_tokens = static_cast<int>(max_tokens);
  return {};
}

/// Tokens of a text; refuses what can't fit before the tokenizer spends time on it.
api::ApiResult<std::vector<TokenId>> tokenize(const std::string& text, const TextCodec& codec,
                                              const PromptRules& rules) {
  const size_t at_least = text.size() / std::max<size_t>(1, codec.max_piece_bytes());
  const ModelCard& card = rules.card;
  if (at_least > static_cast<size_t>(card.max_model_len)) {
    const int64_t room = card.max_model_len - static_cast<int64_t>(at_least);
    return invalid(rules.param,
                   "the context is {} tokens, but the prompt has at least {} ({} bytes) and "
                   "max_tokens is {}: shorten the prompt",
                   card.max_model_len, at_least, text.size(), max_tokens_of(rules, room));
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
                          kCompletionMaxTokens, plan.params, card};
  for (api::Prompt& input : request.prompts) {
    PlannedPrompt prompt;
    if (auto* text = std::get_if<std::string>(&input)) {
      auto tokens = tokenize(*text, codec, rules);
      if (!tokens) return tl::unexpected(std::move(tokens.error()));
      prompt.tokens = std::move(*tokens);
      if (plan.echo) prompt.text = std::move(*text);
    } else {
      prompt.tokens = std::move(std::get<std::vector<TokenId>>(input));
      if (plan.echo)
        prompt.text = codec.decode(
            prompt.tokens, {.skip_special = plan.params.skip_special_tokens, .at_start = true});
    }
    if (auto ok = fit(prompt, rules); !ok) {
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
  const PromptRules rules{"messages", plan.params.add_special_tokens.value_or(false), std::nullopt,
                          plan.params, card};
  auto text = render_chat(request.prompt, codec);
  if (!text) return tl::unexpected(std::move(text.error()));
  auto tokens = tokenize(*text, codec, rules);
  if (!tokens) return tl::unexpected(std::move(tokens.error()));
  PlannedPrompt prompt;
  prompt.tokens = std::move(*tokens);
  if (auto ok = fit(prompt, rules); !ok) {
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
