#include "api/field_reader.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "api/json_writer.h"

namespace baton::api {
namespace {

constexpr std::string_view kJsonSpace = " \t\n\r";
constexpr size_t kNowhere = std::string_view::npos;

/// Whether `text` ends with the key "prompt" and its colon.
bool ends_with_prompt_key(std::string_view text) {
  const auto trim = [&] { text = text.substr(0, text.find_last_not_of(kJsonSpace) + 1); };
  trim();
  if (!text.ends_with(':')) return false;
  text.remove_suffix(1);
  trim();
  return text.ends_with("\"prompt\"") && !text.ends_with("\\\"prompt\"");
}

/// Whether `text` has no second key "prompt", however it is spelled.
bool names_prompt_once(std::string_view text) {
  constexpr std::string_view kEnd = "prompt\"";
  const size_t first = text.find(kEnd);
  return text.find(kEnd, first + kEnd.size()) == text.npos && text.find("\\u") == text.npos;
}

/// Brackets and commas outside of strings, counted before the parser allocates anything for them.
/// Where the array begins that is the body's own "prompt"; kNowhere if there is none, or several.
ApiResult<size_t> check_nesting(std::string_view body, const RequestLimits& limits) {
  size_t prompt = kNowhere;
  int n_prompts = 0;
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
      if (c == '[' && depth == 1 && ends_with_prompt_key(body.substr(0, i))) {
        prompt = ++n_prompts == 1 ? i : kNowhere;
      }
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
  return prompt;
}

/// Reads "[1, 23, 4]", an array of numbers that may be token ids and of nothing else, at the start
/// of `text` and appends their bytes to `ids`. Its length in the text, or 0 if it is not so plain.
size_t read_plain_ids(std::string_view text, std::vector<uint8_t>& ids) {
  size_t at = 1;
  while (true) {
    at = std::min(text.find_first_not_of(kJsonSpace, at), text.size());
    TokenId id = -1;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    const size_t n_digits = static_cast<size_t>(end - text.data()) - at;
    // JSON has no leading zeros; "-0" is no id to us either.
    if (error != std::errc() || id < 0 || text[at] == '-' || (text[at] == '0' && n_digits > 1)) {
      return 0;
    }
    ids.resize(ids.size() + sizeof id);
    std::memcpy(ids.data() + ids.size() - sizeof id, &id, sizeof id);
    at = std::min(text.find_first_not_of(kJsonSpace, at + n_digits), text.size());
    if (at == text.size() || (text[at] != ',' && text[at] != ']')) return 0;
    if (text[at++] == ']') return at;
  }
}

/// A prompt of token ids may be most of a body, and as a document it takes ten times as long to
/// read as its digits do. So a plain one becomes a value of bytes (the type that no JSON text has).
nlohmann::json parse_document(std::string_view body, size_t prompt) {
  std::vector<uint8_t> ids;
  const size_t n_bytes = prompt == kNowhere ? 0 : read_plain_ids(body.substr(prompt), ids);
  if (n_bytes == 0) return nlohmann::json::parse(body);
  std::string rest(body.substr(0, prompt));
  rest += "null";
  rest += body.substr(prompt + n_bytes);
  if (!names_prompt_once(rest)) return nlohmann::json::parse(body);  // the last one counts
  nlohmann::json json = nlohmann::json::parse(rest, nullptr, false);
  if (!json.is_object()) return nlohmann::json::parse(body);  // for the right place in the message
  json["prompt"] = nlohmann::json::binary(std::move(ids));
  return json;
}

}  // namespace

ApiResult<std::unique_ptr<nlohmann::json>> parse_object(std::string_view body,
                                                        const RequestLimits& limits) {
  if (body.empty()) return invalid("", "the request body is empty; send a JSON object");
  const auto prompt = check_nesting(body, limits);
  if (!prompt) return tl::unexpected(prompt.error());
  try {
    auto json = std::make_unique<nlohmann::json>(parse_document(body, *prompt));
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
    case nlohmann::json::value_t::binary:
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

namespace {

tl::unexpected<ApiError> wrong_id(const std::string& param, size_t i, int n_vocab,
                                  const std::string& found) {
  return invalid(param, "'{}[{}]' must be a token id from 0 to {}, not {}", param, i, n_vocab - 1,
                 found);
}

ApiResult<std::vector<TokenId>> read_packed_ids(const std::vector<uint8_t>& bytes,
                                                const std::string& param, int n_vocab) {
  std::vector<TokenId> ids(bytes.size() / sizeof(TokenId));
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= n_vocab) return wrong_id(param, i, n_vocab, std::to_string(ids[i]));
  }
  return ids;
}

}  // namespace

ApiResult<std::vector<TokenId>> read_token_ids(const nlohmann::json& array,
                                               const std::string& param, int n_vocab) {
  if (array.is_binary()) return read_packed_ids(array.get_binary(), param, n_vocab);
  if (!array.is_array()) {
    return invalid(param, "'{}' must be an array of token ids, not {}", param, describe(array));
  }
  std::vector<TokenId> ids;
  ids.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const nlohmann::json& value = array[i];
    // A negative integer is not number_unsigned in this library.
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= static_cast<uint64_t>(n_vocab)) {
      return wrong_id(param, i, n_vocab, describe(value));
    }
    ids.push_back(static_cast<TokenId>(value.get<uint64_t>()));
  }
  return ids;
}

}  // namespace baton::api
