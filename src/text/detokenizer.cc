#include "text/detokenizer.h"

namespace baton::text {

std::string Detokenizer::push(std::span<const TokenId> ids) {
  std::string bytes;
  for (const TokenId id : ids) {
    if (skip_special_ && tokenizer_->is_special(id)) continue;
    std::string_view token = tokenizer_->token_bytes(id);
    if (strip_space_ && !token.empty()) {
      if (token.front() == ' ') token.remove_prefix(1);
      strip_space_ = false;
    }
    bytes += token;
  }
  std::string text;
  utf8_.push(bytes, text);
  return text;
}

std::string Detokenizer::flush() {
  std::string text;
  utf8_.flush(text);
  return text;
}

}  // namespace baton::text
