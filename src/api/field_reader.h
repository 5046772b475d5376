// Internal to src/api: typed, checked access to the fields of one JSON object.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/error.h"
#include "api/request.h"

namespace baton::api {

/// Parses `body` into an object. Depth and number of containers are bounded before anything is
/// built. "prompt", if it is a plain array of numbers that may be ids, is a value of type binary:
/// read_token_ids() knows it.
[[nodiscard]] ApiResult<std::unique_ptr<nlohmann::json>> parse_object(std::string_view body,
                                                                      const RequestLimits& limits);

struct IntegerRange {
  int64_t min;
  int64_t max;
};

/// Reads fields; a field that is absent or null reads as nullopt. The first error is kept and makes
/// the reader failed; reads after it still work, so callers look once, at the end.
/// Thread-compatible.
class FieldReader {
 public:
  /// `object` is a JSON object that outlives the reader; `prefix` is put before names in errors.
  explicit FieldReader(const nlohmann::json& object, std::string prefix = {})
      : object_(object), prefix_(std::move(prefix)) {}

  /// The value of `key`, nullptr if absent or null.
  [[nodiscard]] const nlohmann::json* find(std::string_view key) const;
  std::optional<std::string> string(std::string_view key);
  std::optional<bool> boolean(std::string_view key);
  std::optional<int64_t> integer(std::string_view key, IntegerRange range);
  /// A number in [min, max] that is also finite as a float.
  std::optional<float> number(std::string_view key, double min, double max);
  /// An array of token ids in [0, n_vocab).
  std::optional<std::vector<TokenId>> token_ids(std::string_view key, int n_vocab);

  [[nodiscard]] std::string path(std::string_view key) const { return prefix_ + std::string(key); }
  /// Keeps the error if it is the first.
  void fail(ApiError error);
  template <typename... Args>
  void fail(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
    fail(invalid(path(key), format, std::forward<Args>(args)...).value());
  }
  [[nodiscard]] bool failed() const { return error_.has_value(); }
  [[nodiscard]] tl::unexpected<ApiError> error() { return tl::unexpected(std::move(*error_)); }

 private:
  const nlohmann::json& object_;
  std::string prefix_;
  std::optional<ApiError> error_;
};

/// "a string", "null", "5" …: what was found, for messages. Long values are cut.
[[nodiscard]] std::string describe(const nlohmann::json& value);

/// The token ids of a JSON array; `param` names it in the error.
[[nodiscard]] ApiResult<std::vector<TokenId>> read_token_ids(const nlohmann::json& array,
                                                             const std::string& param, int n_vocab);

/// The sampling, output and stream fields that completions and chat share.
[[nodiscard]] GenerationParams read_generation_params(FieldReader& reader,
                                                      const RequestLimits& limits);

/// messages, add_generation_prompt, continue_final_message, chat_template_kwargs. `body` is what
/// the reader's object was parsed from: the object itself has forgotten the order of keys.
[[nodiscard]] ChatPrompt read_chat_prompt(FieldReader& reader, std::string_view body,
                                          const RequestLimits& limits);

}  // namespace baton::api
