// TextCodec over a model's own tokenizer and chat template (src/text).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "frontend/text_codec.h"
#include "text/tokenizer.h"

namespace baton::frontend {

/// Renders a chat; thread-safe. kInvalidArgument with the template's own message if it refuses.
using ChatRenderer = std::function<Result<std::string>(const api::ChatPrompt&)>;

/// `renderer` may be empty: the model has no chat template, and chats are refused.
[[nodiscard]] std::shared_ptr<const TextCodec> make_model_codec(
    std::shared_ptr<const text::Tokenizer> tokenizer, ChatRenderer renderer);

}  // namespace baton::frontend
