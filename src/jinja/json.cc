#include "jinja/json.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

using Json = nlohmann::ordered_json;

Result<Value> from_string(const std::string& text) {
  if (!is_valid_utf8(text)) return fail(ErrorCode::kInvalidArgument, "a string is not valid UTF-8");
  return make_string(nullptr, text);
}

Result<Value> from_array(const Json& json, int levels_left) {
  std::vector<Value> items;
  items.reserve(json.size());
  for (const Json& item : json) {
    auto value = from_json(item, levels_left);
    if (!value) return value;
    items.push_back(std::move(*value));
  }
  return make_list(nullptr, std::move(items));
}

Result<Value> from_object(const Json& json, int levels_left) {
  auto dict = std::make_shared<Dict>(nullptr);
  for (auto it = json.begin(); it != json.end(); ++it) {
    auto key = from_string(it.key());
    if (!key) return key;
    auto value = from_json(it.value(), levels_left);
    if (!value) return value;
    dict->set(std::move(*key), std::move(*value));
  }
  return Value(std::move(dict));
}

}  // namespace

Result<Value> from_json(const Json& json, int max_nesting) {
  if (max_nesting < 0) return fail(ErrorCode::kInvalidArgument, "values are nested too deeply");
  switch (json.type()) {
    case Json::value_t::null:
      return Value();
    case Json::value_t::boolean:
      return Value(json.get<bool>());
    case Json::value_t::number_integer:
      return Value(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return fail(ErrorCode::kInvalidArgument, "number {} does not fit a signed 64-bit integer",
                    number);
      }
      return Value(static_cast<int64_t>(number));
    }
    case Json::value_t::number_float:
      return Value(json.get<double>());
    case Json::value_t::string:
      return from_string(json.get_ref<const std::string&>());
    case Json::value_t::array:
      return from_array(json, max_nesting - 1);
    case Json::value_t::object:
      return from_object(json, max_nesting - 1);
    default:
      return fail(ErrorCode::kInvalidArgument, "not a JSON value");
  }
}

}  // namespace baton::jinja
