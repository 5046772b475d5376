// One choice on its way from tokens to text.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/responses.h"
#include "base/token_request.h"
#include "frontend/text_codec.h"
#include "text/stop_matcher.h"

namespace baton::frontend {

struct ChoiceOptions {
  bool skip_special_tokens = true;
  bool want_logprobs = false;
  bool want_token_ids = false;
  bool tokens_as_ids = false;  ///< return_tokens_as_token_ids
  int min_tokens = 0;          ///< stop strings are not looked for in the text of the first ones
  std::shared_ptr<const text::StopStrings> stops;  ///< never null
};

/// `logprob`'s token and alternatives by name, for a response.
[[nodiscard]] api::TokenReport report_token(const TextCodec& codec, TokenId id,
                                            const LogprobEntry& logprob, bool tokens_as_ids);

/// Detokenises, looks for stop strings, and gathers what the next chunk (or the whole response)
/// says. Thread-compatible; lives on its exchange's strand.
class ChoiceStream {
 public:
  ChoiceStream(const TextCodec& codec, const ChoiceOptions& options, int index);

  /// Puts the prompt before everything else (echo).
  void echo(std::string text, std::vector<api::TokenReport> reports);
  /// Takes the tokens up to a stop string; what comes after one is dropped and not counted.
  /// `event.finish` is kStop or kLength if set. Returns how many tokens counted.
  int add(const TokenEvent& event);

  [[nodiscard]] bool finished() const { return finish_.has_value(); }
  [[nodiscard]] std::optional<FinishReason> finish_reason() const { return finish_; }
  [[nodiscard]] int n_tokens() const { return n_tokens_; }
  /// Whether take() would give the client anything new.
  [[nodiscard]] bool has_news() const;
  /// All that came since the last call.
  [[nodiscard]] api::ChoiceOutput take();

 private:
  void add_text(const std::string& text);
  void match(const std::string& text);
  void finish(const TokenEvent& event);

  const TextCodec& codec_;
  const ChoiceOptions& options_;
  int index_;
  std::unique_ptr<TextDecoder> decoder_;
  text::StopMatcher matcher_;
  api::ChoiceOutput pending_;
  int n_tokens_ = 0;
  int64_t n_code_points_ = 0;  ///< of decoded text, the held-back part included
  std::optional<FinishReason> finish_;
};

}  // namespace baton::frontend
