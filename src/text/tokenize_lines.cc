#include "text/tokenize_lines.h"

#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>

namespace baton::text {
namespace {

using nlohmann::json;

/// The field as a T, `fallback` if it is absent or null, an error if it is of another type.
Result<bool> flag(const json& object, const char* name, bool fallback) {
  const auto at = object.find(name);
  if (at == object.end() || at->is_null()) return fallback;
  if (!at->is_boolean()) return fail(ErrorCode::kInvalidArgument, "'{}' must be a bool", name);
  return at->get<bool>();
}

Result<json> encode_line(const json& line, const Tokenizer& tokenizer) {
  const auto text = line.find("text");
  if (text == line.end() || !text->is_string()) {
    return fail(ErrorCode::kInvalidArgument, "'text' must be given, as a string");
  }
  const Result<bool> add_special = flag(line, "add_special_tokens", true);
  if (!add_special) return tl::unexpected(add_special.error());
  const Result<bool> parse_special = flag(line, "parse_special", true);
  if (!parse_special) return tl::unexpected(parse_special.error());
  return json{{"ids", tokenizer.encode(text->get_ref<const std::string&>(),
                                       {*add_special, *parse_special})}};
}

Result<json> decode_line(const json& line, const Tokenizer& tokenizer) {
  const auto list = line.find("ids");
  if (list == line.end() || !list->is_array()) {
    return fail(ErrorCode::kInvalidArgument, "'ids' must be given, as a list of token ids");
  }
  const Result<bool> skip = flag(line, "skip_special_tokens", false);
  if (!skip) return tl::unexpected(skip.error());
  std::vector<TokenId> ids;
  ids.reserve(list->size());
  for (const json& item : *list) {
    const bool in_range = item.is_number_unsigned() &&
                          item.get<uint64_t>() < static_cast<uint64_t>(tokenizer.n_tokens());
    if (!in_range) {
      return fail(ErrorCode::kInvalidArgument, "'ids'[{}] must be an integer from 0 to {}",
                  ids.size(), tokenizer.n_tokens() - 1);
    }
    ids.push_back(item.get<TokenId>());
  }
  return json{{"text", tokenizer.decode(ids, {.skip_special_tokens = *skip, .at_start = true})}};
}

Result<json> answer(const std::string& line, const Tokenizer& tokenizer, LinesMode mode) {
  const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) {
    return fail(ErrorCode::kInvalidArgument, "the line is not valid JSON in UTF-8");
  }
  if (!parsed.is_object()) {
    return fail(ErrorCode::kInvalidArgument, "the line must be a JSON object");
  }
  return mode == LinesMode::kEncode ? encode_line(parsed, tokenizer)
                                    : decode_line(parsed, tokenizer);
}

}  // namespace

void tokenize_lines(std::istream& in, std::ostream& out, const Tokenizer& tokenizer,
                    LinesMode mode) {
  for (std::string line; std::getline(in, line);) {
    const Result<json> result = answer(line, tokenizer, mode);
    const json shown = result ? *result : json{{"error", result.error().message}};
    out << shown.dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
  }
  out.flush();
}

}  // namespace baton::text
