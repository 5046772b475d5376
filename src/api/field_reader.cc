#include "api/field_reader.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "api/json_writer.h"

namespace baton::api {
namespace {

/// Brackets and commas outside of strings, counted before the parser allocates anything for them.
ApiResult<void> check_nesting(std::string_view body, const RequestLimits& limits) {
  int depth = 0;
  int n_containers = 0;
  int n_values = 0;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limits.max_depth) {
        return invalid("", "the JSON body is nested deeper than {} levels", limits.max_depth);
      }
      if (++n_containers > limits.max_containers) {
        return invalid("", "the JSON body has more than {} arrays and objects",
                       limits.max_containers);
      }
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && ++n_values > limits.max_values) {
      return invalid("", "the JSON body has more than {} values", limits.max_values);
    }
  }
  return {};
}

}  // namespace

ApiResult<std::unique_ptr<nlohmann::json>> parse_object(std::string_view body,
                                                        const RequestLimits& limits) {
  if (body.empty()) return invalid("", "the request body is empty; send a JSON object");
  if (auto ok = check_nesting(body, limits); !ok) return tl::unexpected(std::move(ok.error()));
  try {
    auto json = std::make_unique<nlohmann::json>(nlohmann::json::parse(body));
    if (!json->is_object()) {
      return invalid("", "the request body must be a JSON object, not {}", describe(*json));
    }
    return json;
  } catch (const nlohmann::json::exception& e) {
    // what() is "[json.exception.parse_error.101] parse error at line 1, column 2: …".
    const std::string_view what = e.what();
    const size_t end_of_tag = what.find("] ");
    return invalid("", "the request body is not valid JSON: {}",
                   to_valid_utf8(end_of_tag == what.npos ? what : what.substr(end_of_tag + 2)));
  }
}

std::string describe(const nlohmann::json& value) {
  switch (value.type()) {
    case nlohmann::json::value_t::string:
      return "a string";
    case nlohmann::json::value_t::array:
      return "an array";
    case nlohmann::json::value_t::object:
      return "an object";
    default:
      return value.dump();  // null, true, 5, 0.5
  }
}

const nlohmann::json* FieldReader::find(std::string_view key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<std::string> FieldReader::string(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    fail(key, "'{}' must be a string, not {}", path(key), describe(*value));
    return std::nullopt;
  }
  return value->get_ref<const std::string&>();
}

std::optional<bool> FieldReader::boolean(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    fail(key, "'{}' must be true or false, not {}", path(key), describe(*value));
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<int64_t> FieldReader::integer(std::string_view key, IntegerRange range) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  // Unsigned values above int64 would wrap in get<int64_t>().
  const bool too_big = value->is_number_unsigned() &&
                       value->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  if (!value->is_number_integer() || too_big || value->get<int64_t>() < range.min ||
      value->get<int64_t>() > range.max) {
    fail(key, "'{}' must be an integer from {} to {}, not {}", path(key), range.min, range.max,
         describe(*value));
    return std::nullopt;
  }
  return value->get<int64_t>();
}

std::optional<float> FieldReader::number(std::string_view key, double min, double max) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= min && number <= max) || !std::isfinite(static_cast<float>(number))) {
    fail(key, "'{}' must be a number from {} to {}, not {}", path(key), min, max, describe(*value));
    return std::nullopt;
  }
  return static_cast<float>(number);
}

std::optional<std::vector<TokenId>> FieldReader::token_ids(std::string_view key, int n_vocab) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  auto ids = read_token_ids(*value, path(key), n_vocab);
  if (!ids) {
    fail(std::move(ids.error()));
    return std::nullopt;
  }
  return std::move(*ids);
}

void FieldReader::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

ApiResult<std::vector<TokenId>> read_token_ids(const nlohmann::json& array,
                                               const std::string& param, int n_vocab) {
  if (!array.is_array()) {
    return invalid(param, "'{}' must be an array of token ids, not {}", param, describe(array));
  }
  std::vector<TokenId> ids;
  ids.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const nlohmann::json& value = array[i];
    // A negative integer is not number_unsigned in this library.
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= static_cast<uint64_t>(n_vocab)) {
      return invalid(param, "'{}[{}]' must be a token id from 0 to {}, not {}", param, i,
                     n_vocab - 1, describe(value));
    }
    ids.push_back(static_cast<TokenId>(value.get<uint64_t>()));
  }
  return ids;
}

}  // namespace baton::api
