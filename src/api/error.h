// What a client is told when a request fails: OpenAI's error body and the HTTP status that goes
// with it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "base/result.h"

namespace baton::api {

/// One failed request. `param` and `code` are null in the body where they are empty.
struct ApiError {
  int status = 500;         ///< HTTP
  std::string_view type{};  ///< OpenAI's error type, a literal
  std::string message{};
  std::string param{};      ///< the offending field, e.g. "messages[0].content"
  std::string_view code{};  ///< a literal, e.g. "model_not_found"
  int retry_after_s = 0;    ///< 0 = no Retry-After header
};

template <typename T>
using ApiResult = tl::expected<T, ApiError>;

/// 400 that blames `param`: `return invalid("n", "'n' must be …, got {}", n);`
template <typename... Args>
[[nodiscard]] tl::unexpected<ApiError> invalid(std::string param,
                                               fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<ApiError>(
      ApiError{.status = 400,
               .type = "invalid_request_error",
               .message = fmt::format(format, std::forward<Args>(args)...),
               .param = std::move(param)});
}

[[nodiscard]] ApiError unauthorized();
[[nodiscard]] ApiError model_not_found(std::string_view model, std::string_view served);
[[nodiscard]] ApiError route_not_found(std::string_view method, std::string_view path);
[[nodiscard]] ApiError method_not_allowed(std::string_view method, std::string_view path,
                                          std::string_view allowed);
[[nodiscard]] ApiError unsupported_media_type(std::string_view content_type);

/// 409: the request was meant for an engine other than this one, as `what` shows: `own` here,
/// `given` in the request.
[[nodiscard]] ApiError mismatch(std::string param, std::string_view what, std::string_view given,
                                std::string_view own);

/// How a failure below the frontend looks from outside: kExhausted → 429 with Retry-After,
/// kUnavailable → 503, kCancelled → 503 as a server_error, kInvalidArgument → 400, kNotFound → 404,
/// all else → 500.
[[nodiscard]] ApiError from_error(const Error& error);

/// {"error":{"message","type","param","code"}}
[[nodiscard]] std::string error_body(const ApiError& error);

}  // namespace baton::api
