// Internal to src/api: reading what only the messages between router and engines have.
#pragma once

#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "api/field_reader.h"
#include "base/handoff.h"
#include "base/token_request.h"

namespace baton::api {

inline constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
inline constexpr int kMaxLogprobs = 20;  ///< as RequestLimits::max_logprobs
inline constexpr int kMaxChoices = 128;  ///< as RequestLimits::max_choices

/// A FieldReader whose fields are there unless they are called optional. What is missing is an
/// error and reads as T{}. Thread-compatible.
class WireReader {
 public:
  explicit WireReader(const nlohmann::json& object, std::string prefix = {})
      : fields_(object, std::move(prefix)) {}

  [[nodiscard]] FieldReader& fields() { return fields_; }

  int integer(std::string_view key, IntegerRange range) {
    return static_cast<int>(integer64(key, range));
  }
  int64_t integer64(std::string_view key, IntegerRange range) {
    return required(key, fields_.integer(key, range));
  }
  std::optional<int> optional_integer(std::string_view key, IntegerRange range) {
    const auto value = fields_.integer(key, range);
    return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
  }
  bool boolean(std::string_view key) { return required(key, fields_.boolean(key)); }
  std::string string(std::string_view key) { return required(key, fields_.string(key)); }
  std::vector<TokenId> ids(std::string_view key, int n_vocab) {
    return required(key, fields_.token_ids(key, n_vocab));
  }
  /// A string of decimal digits, below 2^64.
  uint64_t digits(std::string_view key) { return required(key, optional_digits(key)); }
  std::optional<uint64_t> optional_digits(std::string_view key);
  /// Printable ASCII, at most 128 bytes; absent = empty.
  std::string label(std::string_view key);
  std::vector<LogprobEntry> optional_logprobs(std::string_view key, int n_vocab);
  KvAddress address(std::string_view key);

  /// An object or an array; null and an error if it is absent or of another type.
  const nlohmann::json* object(std::string_view key);
  const nlohmann::json* array(std::string_view key);

  [[nodiscard]] bool failed() const { return fields_.failed(); }
  [[nodiscard]] tl::unexpected<ApiError> error() { return fields_.error(); }
  /// Takes over the error of a reader of a part.
  void join(WireReader& part) {
    if (part.failed()) fields_.fail(std::move(part.error().value()));
  }

 private:
  template <typename T>
  T required(std::string_view key, std::optional<T> value) {
    if (!value) fields_.fail(key, "'{}' is missing", fields_.path(key));
    return value ? std::move(*value) : T{};
  }

  FieldReader fields_;
};

/// What JsonWriter::exact() wrote; nothing if it is neither a number nor "inf", "-inf", "nan".
[[nodiscard]] std::optional<float> read_exact(const nlohmann::json& value);

}  // namespace baton::api
