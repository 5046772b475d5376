// Result<T>: how every expected failure travels. Bottom of all layers; no project includes.
//
// Expected failures (bad input, a missing file, a peer that died) return Result. Bugs abort
// through BATON_CHECK (check.h), which no input or peer can reach.
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace baton {

enum class ErrorCode {
  kInvalidArgument,  ///< the caller's input is wrong: HTTP 400
  kNotFound,         ///< no such model, file, request: HTTP 404
  kExhausted,        ///< a queue or pool is full: HTTP 429
  kUnavailable,      ///< nobody can serve this now: HTTP 503
  kCancelled,        ///< the client went away
  kCorrupt,          ///< a file or peer sent bytes that can't be right
  kUnsupported,      ///< understood, but not supported by this build or model
  kIo,               ///< the operating system said no
  kInternal,         ///< none of the above
};

/// An expected failure. `message` names the thing (request, file, flag, peer) and what would be
/// right.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  bool retryable = false;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

/// `return fail(ErrorCode::kCorrupt, "{}: tensor '{}' …", path, name);`
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format,
                                         Args&&... args) {
  return tl::unexpected<Error>(
      Error{code, fmt::format(format, std::forward<Args>(args)...), false});
}

}  // namespace baton
