#include <nlohmann/json.hpp>

#include "api/field_reader.h"
#include "api/parse.h"

namespace baton::api {

ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body,
                                                  const RequestLimits& limits) {
  auto json = parse_object(body, limits);
  if (!json) return tl::unexpected(std::move(json.error()));
  FieldReader reader(**json);
  TokenizeRequest out;
  out.model = reader.string("model");
  const bool is_chat = reader.find("messages") != nullptr;
  if (is_chat && reader.find("prompt") != nullptr) {
    reader.fail("prompt", "give 'prompt' or 'messages', not both");
  }
  if (is_chat) {
    out.input = read_chat_prompt(reader, body, limits);
  } else if (auto prompt = reader.string("prompt")) {
    out.input = std::move(*prompt);
  } else {
    reader.fail("prompt", "'prompt' (a string) or 'messages' is missing");
  }
  out.add_special_tokens = reader.boolean("add_special_tokens").value_or(!is_chat);
  out.return_token_strs = reader.boolean("return_token_strs").value_or(false);
  if (reader.failed()) return reader.error();
  return out;
}

ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body,
                                                      const RequestLimits& limits) {
  auto json = parse_object(body, limits);
  if (!json) return tl::unexpected(std::move(json.error()));
  FieldReader reader(**json);
  DetokenizeRequest out;
  out.model = reader.string("model");
  auto tokens = reader.token_ids("tokens", limits.n_vocab);
  if (tokens) {
    out.tokens = std::move(*tokens);
  } else {
    reader.fail("tokens", "'tokens' (a list of token ids) is missing");
  }
  if (reader.failed()) return reader.error();
  return out;
}

}  // namespace baton::api
