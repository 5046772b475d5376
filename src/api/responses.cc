#include "api/responses.h"

#include <algorithm>

#include "api/json_writer.h"

namespace baton::api {
namespace {

void write_ids(JsonWriter& json, std::string_view key, std::span<const TokenId> ids) {
  json.key(key).begin_array();
  for (const TokenId id : ids) json.integer(id);
  json.end_array();
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.key("usage").begin_object();
  json.key("prompt_tokens").integer(usage.n_prompt);
  json.key("completion_tokens").integer(usage.n_completion);
  json.key("total_tokens").integer(usage.n_prompt + usage.n_completion);
  json.key("prompt_tokens_details").begin_object();
  json.key("cached_tokens").integer(usage.n_cached);
  json.end_object().end_object();
}

void write_head(JsonWriter& json, const ResponseHead& head, std::string_view object) {
  json.begin_object();
  json.key("id").string(head.id);
  json.key("object").string(object);
  json.key("created").integer(head.created_s);
  json.key("model").string(head.model);
  json.key("system_fingerprint").string(head.fingerprint);
}

void write_named(JsonWriter& json, const NamedLogprob& token) {
  json.key("token").string(token.name);
  json.key("logprob").number(token.logprob);
  json.key("bytes").begin_array();
  for (const char c : token.bytes) json.integer(static_cast<unsigned char>(c));
  json.end_array();
}

/// {"content":[{token, logprob, bytes, top_logprobs}]}
void write_chat_logprobs(JsonWriter& json, const ChoiceOutput& choice) {
  json.key("logprobs");
  if (!choice.has_logprobs) {
    json.null();
    return;
  }
  json.begin_object().key("content").begin_array();
  for (const TokenReport& token : choice.logprobs) {
    json.begin_object();
    write_named(json, token.chosen);
    json.key("top_logprobs").begin_array();
    for (const NamedLogprob& top : token.top) {
      json.begin_object();
      write_named(json, top);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

/// {token: logprob} of the best, and of the chosen one if it is not among them. Two tokens may have
/// the same text (bytes that are no UTF-8): the better one is kept, because keys must be unique.
void write_top_map(JsonWriter& json, const TokenReport& token) {
  if (!token.has_logprob) {
    json.null();
    return;
  }
  std::vector<std::string_view> seen;
  const auto add = [&](const NamedLogprob& one) {
    if (std::find(seen.begin(), seen.end(), one.name) != seen.end()) return;
    seen.push_back(one.name);
    json.key_escaped(one.name).number(one.logprob);
  };
  json.begin_object();
  for (const NamedLogprob& top : token.top) add(top);
  add(token.chosen);
  json.end_object();
}

/// OpenAI's legacy shape: parallel arrays.
void write_completion_logprobs(JsonWriter& json, const ChoiceOutput& choice) {
  json.key("logprobs");
  if (!choice.has_logprobs) {
    json.null();
    return;
  }
  json.begin_object();
  json.key("tokens").begin_array();
  for (const TokenReport& token : choice.logprobs) json.string(token.chosen.name);
  json.end_array().key("token_logprobs").begin_array();
  for (const TokenReport& token : choice.logprobs) {
    token.has_logprob ? json.number(token.chosen.logprob) : json.null();
  }
  json.end_array().key("top_logprobs").begin_array();
  for (const TokenReport& token : choice.logprobs) write_top_map(json, token);
  json.end_array().key("text_offset").begin_array();
  for (const TokenReport& token : choice.logprobs) json.integer(token.text_offset);
  json.end_array().end_object();
}

void write_finish(JsonWriter& json, const ChoiceOutput& choice) {
  json.key("finish_reason");
  if (!choice.finish) {
    json.null();
  } else {
    json.string(*choice.finish == FinishReason::kLength ? "length" : "stop");
  }
  json.key("stop_reason");
  if (const auto* id = std::get_if<TokenId>(&choice.stop_reason)) {
    json.integer(*id);
  } else if (const auto* text = std::get_if<std::string>(&choice.stop_reason)) {
    json.string(*text);
  } else {
    json.null();
  }
  if (choice.has_token_ids) write_ids(json, "token_ids", choice.token_ids);
}

void write_choice(JsonWriter& json, const ResponseHead& head, const ChoiceOutput& choice,
                  bool streamed) {
  json.begin_object().key("index").integer(choice.index);
  if (head.chat) {
    json.key(streamed ? "delta" : "message").begin_object();
    if (!streamed || choice.first) json.key("role").string("assistant");
    json.key("content").string(choice.text);
    if (!streamed) json.key("refusal").null();
    json.end_object();
    write_chat_logprobs(json, choice);
  } else {
    json.key("text").string(choice.text);
    write_completion_logprobs(json, choice);
  }
  write_finish(json, choice);
  if (!head.chat && choice.prompt_token_ids != nullptr) {
    write_ids(json, "prompt_token_ids", *choice.prompt_token_ids);
  }
  json.end_object();
}

/// Chat responses have one prompt, so vLLM puts its ids at the top.
void write_chat_prompt_ids(JsonWriter& json, const ResponseHead& head, const ChoiceOutput& choice) {
  if (head.chat && choice.prompt_token_ids != nullptr) {
    write_ids(json, "prompt_token_ids", *choice.prompt_token_ids);
  }
}

std::string as_event(JsonWriter& json) { return "data: " + json.take() + "\n\n"; }

void write_model(JsonWriter& json, const ModelEntry& model) {
  json.begin_object();
  json.key("id").string(model.id);
  json.key("object").string("model");
  json.key("created").integer(model.created_s);
  json.key("owned_by").string("baton");
  json.key("root").string(model.root);
  json.key("parent").null();
  json.key("max_model_len").integer(model.max_model_len);
  json.end_object();
}

}  // namespace

std::string response_body(const ResponseHead& head, std::span<const ChoiceOutput> choices,
                          const Usage& usage) {
  JsonWriter json;
  write_head(json, head, head.chat ? "chat.completion" : "text_completion");
  json.key("choices").begin_array();
  for (const ChoiceOutput& choice : choices) write_choice(json, head, choice, false);
  json.end_array();
  write_usage(json, usage);
  if (!choices.empty()) write_chat_prompt_ids(json, head, choices.front());
  json.end_object();
  return json.take();
}

std::string stream_chunk(const ResponseHead& head, const ChoiceOutput& choice) {
  JsonWriter json;
  write_head(json, head, head.chat ? "chat.completion.chunk" : "text_completion");
  json.key("choices").begin_array();
  write_choice(json, head, choice, true);
  json.end_array();
  if (head.include_usage) json.key("usage").null();
  write_chat_prompt_ids(json, head, choice);
  json.end_object();
  return as_event(json);
}

std::string usage_chunk(const ResponseHead& head, const Usage& usage) {
  JsonWriter json;
  write_head(json, head, head.chat ? "chat.completion.chunk" : "text_completion");
  json.key("choices").begin_array().end_array();
  write_usage(json, usage);
  json.end_object();
  return as_event(json);
}

std::string error_chunk(const ApiError& error) { return "data: " + error_body(error) + "\n\n"; }

std::string model_body(const ModelEntry& model) {
  JsonWriter json;
  write_model(json, model);
  return json.take();
}

std::string model_list_body(std::span<const ModelEntry> models) {
  JsonWriter json;
  json.begin_object().key("object").string("list").key("data").begin_array();
  for (const ModelEntry& model : models) write_model(json, model);
  json.end_array().end_object();
  return json.take();
}

std::string tokenize_body(const TokenizeResult& result) {
  JsonWriter json;
  json.begin_object();
  json.key("count").integer(static_cast<int64_t>(result.tokens.size()));
  json.key("max_model_len").integer(result.max_model_len);
  write_ids(json, "tokens", result.tokens);
  json.key("token_strs");
  if (result.token_strs) {
    json.begin_array();
    for (const std::string& text : *result.token_strs) json.string(text);
    json.end_array();
  } else {
    json.null();
  }
  json.end_object();
  return json.take();
}

std::string detokenize_body(std::string_view prompt) {
  JsonWriter json;
  json.begin_object().key("prompt").string(prompt).end_object();
  return json.take();
}

std::string status_body(std::string_view status) {
  JsonWriter json;
  json.begin_object().key("status").string(status).end_object();
  return json.take();
}

}  // namespace baton::api
