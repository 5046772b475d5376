// JSON bodies → requests. Strict types, every value checked, null means absent, unknown fields
// ignored, known ones that are not implemented refused by name.
//
// Sources of the fields: OpenAI's API reference; vLLM's protocol.py for the extra ones.
#pragma once

#include <string_view>

#include "api/error.h"
#include "api/request.h"

namespace baton::api {

[[nodiscard]] ApiResult<CompletionRequest> parse_completion_request(std::string_view body,
                                                                    const RequestLimits& limits);
[[nodiscard]] ApiResult<ChatRequest> parse_chat_request(std::string_view body,
                                                        const RequestLimits& limits);
[[nodiscard]] ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body,
                                                                const RequestLimits& limits);
[[nodiscard]] ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body,
                                                                    const RequestLimits& limits);

}  // namespace baton::api
