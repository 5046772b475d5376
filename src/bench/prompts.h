// Planned requests as the JSON bodies of an OpenAI API.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "bench/workload.h"

namespace baton::bench {

struct PromptOptions {
  std::string model;       ///< empty = left out
  bool chat = false;       ///< /v1/chat/completions, one user message
  bool token_ids = false;  ///< prompts as ids in [first_id, first_id + n_ids), else as words
  TokenId first_id = 1000;
  uint32_t n_ids = 20000;
  double temperature = 0;
  bool ignore_eos = true;  ///< a field of vLLM's that others ignore
};

/// The tokens of a prompt as ids.
[[nodiscard]] std::vector<TokenId> prompt_ids(const PlannedRequest& request,
                                              const PromptOptions& options);
/// Short common English words with blanks between them; most tokenizers take one token for each.
[[nodiscard]] std::string prompt_words(const PlannedRequest& request);

/// The whole body: a stream, with usage at its end.
[[nodiscard]] std::string request_body(const PlannedRequest& request, const PromptOptions& options);

}  // namespace baton::bench
