// From a parsed request to token prompts: model name, chat template, tokenizer, context.
#pragma once

#include <string>
#include <vector>

#include "api/error.h"
#include "api/request.h"
#include "frontend/model_card.h"
#include "frontend/text_codec.h"

namespace baton::frontend {

/// One prompt of a request, ready to be submitted.
struct PlannedPrompt {
  std::vector<TokenId> tokens;
  std::string text;    ///< what echo shows; empty without echo
  int max_tokens = 0;  ///< prompt and output fit into the context
};

/// Everything that is decided before a backend hears of the request.
struct GenerationPlan {
  api::GenerationParams params;
  bool chat = false;
  bool echo = false;
  std::vector<PlannedPrompt> prompts;  ///< at least one
};

/// 404 unless the request names a served model or none.
[[nodiscard]] api::ApiResult<void> check_model(const std::optional<std::string>& model,
                                               const ModelCard& card);
[[nodiscard]] api::ApiResult<GenerationPlan> plan_completion(api::CompletionRequest request,
                                                             const TextCodec& codec,
                                                             const ModelCard& card);
[[nodiscard]] api::ApiResult<GenerationPlan> plan_chat(api::ChatRequest request,
                                                       const TextCodec& codec,
                                                       const ModelCard& card);
/// The text of a chat; an error blames `messages`.
[[nodiscard]] api::ApiResult<std::string> render_chat(const api::ChatPrompt& prompt,
                                                      const TextCodec& codec);

}  // namespace baton::frontend
