#include "api/error.h"

#include "api/json_writer.h"

namespace baton::api {

ApiError unauthorized() {
  return {.status = 401,
          .type = "authentication_error",
          .message = "missing or wrong API key: send it as 'Authorization: Bearer KEY'",
          .param = {},
          .code = "invalid_api_key"};
}

ApiError model_not_found(std::string_view model, std::string_view served) {
  return {
      .status = 404,
      .type = "not_found_error",
      .message = fmt::format("the model '{}' does not exist; this server has '{}'", model, served),
      .param = "model",
      .code = "model_not_found"};
}

ApiError route_not_found(std::string_view method, std::string_view path) {
  return {.status = 404,
          .type = "not_found_error",
          .message = fmt::format("no such route: {} {}", method, path),
          .param = {},
          .code = "route_not_found"};
}

ApiError method_not_allowed(std::string_view method, std::string_view path,
                            std::string_view allowed) {
  return {.status = 405,
          .type = "invalid_request_error",
          .message = fmt::format("{} does not take {}, use {}", path, method, allowed),
          .param = {},
          .code = "method_not_allowed"};
}

ApiError unsupported_media_type(std::string_view content_type) {
  return {.status = 415,
          .type = "invalid_request_error",
          .message = fmt::format("content type must be application/json, not '{}'", content_type),
          .param = {},
          .code = "unsupported_media_type"};
}

ApiError mismatch(std::string param, std::string_view what, std::string_view given,
                  std::string_view own) {
  std::string message =
      fmt::format("'{}': the {} is {} here, the request names {}", param, what, own, given);
  return {.status = 409,
          .type = "conflict_error",
          .message = std::move(message),
          .param = std::move(param),
          .code = "mismatch"};
}

ApiError from_error(const Error& error) {
  ApiError out{.status = 500, .type = "server_error", .message = error.message, .param = {}};
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
      out.status = 400;
      out.type = "invalid_request_error";
      break;
    case ErrorCode::kNotFound:
      out.status = 404;
      out.type = "not_found_error";
      break;
    case ErrorCode::kExhausted:
      out.status = 429;
      out.type = "rate_limit_error";
      out.code = "queue_full";
      out.retry_after_s = 1;
      break;
    case ErrorCode::kCancelled:  // taken, and then not completed
      out.status = 503;
      out.retry_after_s = 1;
      break;
    case ErrorCode::kUnavailable:
      out.status = 503;
      out.type = "service_unavailable_error";
      out.retry_after_s = 1;
      break;
    case ErrorCode::kCorrupt:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      break;
  }
  return out;
}

std::string error_body(const ApiError& error) {
  JsonWriter json;
  const auto text_or_null = [&](std::string_view key, std::string_view text) {
    json.key(key);
    text.empty() ? json.null() : json.string(text);
  };
  json.begin_object().key("error").begin_object();
  json.key("message").string(error.message);
  json.key("type").string(error.type);
  text_or_null("param", error.param);
  text_or_null("code", error.code);
  json.end_object().end_object();
  return json.take();
}

}  // namespace baton::api
