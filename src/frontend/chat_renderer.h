// A chat of the API, rendered by the model's own template (src/text).
#pragma once

#include <memory>

#include "frontend/model_codec.h"

namespace baton::text {
class ChatTemplate;
}

namespace baton::frontend {

/// Messages become objects {role, content, name?}, in that order, for the template. An empty
/// pointer gives an empty renderer: the model has no template.
[[nodiscard]] ChatRenderer make_chat_renderer(
    std::shared_ptr<const text::ChatTemplate> chat_template);

}  // namespace baton::frontend
