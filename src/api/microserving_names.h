// Internal to src/api: the words that stand for enumerators on the wire.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/role.h"
#include "base/token_request.h"

namespace baton::api {

template <typename E, size_t n>
using Names = std::array<std::pair<E, std::string_view>, n>;

inline constexpr Names<FinishReason, 5> kFinishReasons{{{FinishReason::kStop, "stop"},
                                                        {FinishReason::kLength, "length"},
                                                        {FinishReason::kCancelled, "cancelled"},
                                                        {FinishReason::kError, "error"},
                                                        {FinishReason::kGivenUp, "given_up"}}};

inline constexpr Names<ErrorCode, 9> kErrorCodes{{{ErrorCode::kInvalidArgument, "invalid_argument"},
                                                  {ErrorCode::kNotFound, "not_found"},
                                                  {ErrorCode::kExhausted, "exhausted"},
                                                  {ErrorCode::kUnavailable, "unavailable"},
                                                  {ErrorCode::kCancelled, "cancelled"},
                                                  {ErrorCode::kCorrupt, "corrupt"},
                                                  {ErrorCode::kUnsupported, "unsupported"},
                                                  {ErrorCode::kIo, "io"},
                                                  {ErrorCode::kInternal, "internal"}}};

inline constexpr Names<Role, 3> kRoles{
    {{Role::kPrefill, "prefill"}, {Role::kDecode, "decode"}, {Role::kBoth, "both"}}};

template <typename E, size_t n>
[[nodiscard]] constexpr std::string_view name_of(const Names<E, n>& names, E value) {
  for (const auto& [one, name] : names) {
    if (one == value) return name;
  }
  return names.back().second;
}

template <typename E, size_t n>
[[nodiscard]] constexpr std::optional<E> value_of(const Names<E, n>& names, std::string_view name) {
  for (const auto& [value, one] : names) {
    if (one == name) return value;
  }
  return std::nullopt;
}

}  // namespace baton::api
