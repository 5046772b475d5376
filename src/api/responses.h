// Requests answered: every response and stream chunk as text, in OpenAI's shapes with vLLM's extra
// fields.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/error.h"
#include "base/token_request.h"

namespace baton::api {

/// One token as text, for logprobs. `name` is what clients see (`token_id:N` if they asked for
/// that), `bytes` what the token really stands for, which need not be UTF-8.
struct NamedLogprob {
  std::string name;
  std::string bytes;
  float logprob = 0.0F;
};

/// Log probabilities of one position.
struct TokenReport {
  NamedLogprob chosen;
  bool has_logprob = true;        ///< false for the first token of a prompt
  std::vector<NamedLogprob> top;  ///< best first
  int64_t text_offset = 0;        ///< code points of the choice's text before it (completions only)
};

/// Why vLLM says a choice stopped: nothing, the client's stop id, or the client's stop string.
using StopReason = std::variant<std::monostate, TokenId, std::string>;

/// One choice of a response, or what a chunk adds to it.
struct ChoiceOutput {
  int index = 0;
  std::string text;
  bool has_logprobs = false;
  std::vector<TokenReport> logprobs;
  bool has_token_ids = false;
  std::vector<TokenId> token_ids;
  const std::vector<TokenId>* prompt_token_ids = nullptr;  ///< set where they are to be shown
  std::optional<FinishReason> finish;
  StopReason stop_reason;
  bool first = false;  ///< chat chunks: carries the role
};

struct Usage {
  int64_t n_prompt = 0;
  int64_t n_completion = 0;
  int64_t n_cached = 0;
};

/// What all responses and chunks of one request begin with.
struct ResponseHead {
  bool chat = false;
  std::string id;         ///< "cmpl-…" or "chatcmpl-…"
  int64_t created_s = 0;  ///< Unix time
  std::string model;
  std::string fingerprint;     ///< system_fingerprint
  bool include_usage = false;  ///< stream_options.include_usage: other chunks then say "usage":null
};

/// The complete, unstreamed body.
[[nodiscard]] std::string response_body(const ResponseHead& head,
                                        std::span<const ChoiceOutput> choices, const Usage& usage);
/// "data: {…}\n\n" with one choice.
[[nodiscard]] std::string stream_chunk(const ResponseHead& head, const ChoiceOutput& choice);
/// The chunk before [DONE] that stream_options.include_usage asks for: no choices, only usage.
[[nodiscard]] std::string usage_chunk(const ResponseHead& head, const Usage& usage);
/// One `data: {"error":…}` event.
[[nodiscard]] std::string error_chunk(const ApiError& error);
inline constexpr std::string_view kStreamEnd = "data: [DONE]\n\n";

struct ModelEntry {
  std::string id;
  int64_t created_s = 0;
  int max_model_len = 0;
  std::string root;  ///< the first name: the others are aliases of it
};
[[nodiscard]] std::string model_body(const ModelEntry& model);
[[nodiscard]] std::string model_list_body(std::span<const ModelEntry> models);

struct TokenizeResult {
  int max_model_len = 0;
  std::span<const TokenId> tokens;
  std::optional<std::vector<std::string>> token_strs;
};
[[nodiscard]] std::string tokenize_body(const TokenizeResult& result);
[[nodiscard]] std::string detokenize_body(std::string_view prompt);
/// {"status": …}
[[nodiscard]] std::string status_body(std::string_view status);

}  // namespace baton::api
