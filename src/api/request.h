// What clients may ask, after every check that needs no model state but its vocabulary size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/token_request.h"

namespace baton::api {

/// What the parsers check against. The numbers bound the work one request can ask for.
struct RequestLimits {
  int n_vocab = 0;         ///< token ids are in [0, n_vocab)
  int max_choices = 128;   ///< `n`
  int max_prompts = 1024;  ///< prompts × n
  int max_stop_strings = 32;
  int max_stop_bytes = 1024;
  int max_logprobs = 20;
  int max_template_values = 1024;  ///< in chat_template_kwargs, all levels together
  int max_depth = 64;              ///< nesting of the JSON body
  int max_containers = 1 << 18;    ///< arrays and objects in the body
  int max_values = 1 << 20;        ///< commas in the body: what bounds the memory it takes parsed
};

/// The fields that both kinds of generation share.
struct GenerationParams {
  std::optional<std::string> model;
  SamplingParams sampling;  ///< seed only meaningful if has_seed
  bool has_seed = false;
  int n = 1;
  std::optional<int64_t> max_tokens;  ///< not yet compared with the context
  int min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  std::optional<bool> add_special_tokens;
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;
  std::optional<int> n_logprobs;
  int priority = 0;
  bool stream = false;
  bool include_usage = false;
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

/// POST /v1/completions
struct CompletionRequest {
  GenerationParams params;
  std::vector<Prompt> prompts;  ///< at least one, none empty
  bool echo = false;
};

struct ChatMessage {
  std::string role;     ///< system, user or assistant ("developer" arrives here as system)
  std::string content;  ///< text parts joined by newlines
  std::optional<std::string> name = {};
};

/// What a chat template is rendered from.
struct ChatPrompt {
  std::vector<ChatMessage> messages;  ///< at least one
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  std::string template_kwargs = "{}";  ///< a JSON object as text
};

/// POST /v1/chat/completions
struct ChatRequest {
  GenerationParams params;
  ChatPrompt prompt;
};

/// POST /tokenize
struct TokenizeRequest {
  std::optional<std::string> model;
  std::variant<std::string, ChatPrompt> input;
  bool add_special_tokens = true;  ///< default false for a chat
  bool return_token_strs = false;
};

/// POST /detokenize
struct DetokenizeRequest {
  std::optional<std::string> model;
  std::vector<TokenId> tokens;
};

}  // namespace baton::api
