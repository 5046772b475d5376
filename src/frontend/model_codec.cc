#include "frontend/model_codec.h"

#include <utility>

#include "text/detokenizer.h"

namespace baton::frontend {
namespace {

class ModelDecoder final : public TextDecoder {
 public:
  ModelDecoder(const text::Tokenizer& tokenizer, const DecodeMode& mode)
      : detokenizer_(tokenizer,
                     {.skip_special_tokens = mode.skip_special, .at_start = mode.at_start}) {}
  std::string push(TokenId id) override { return detokenizer_.push(id); }
  std::string finish() override { return detokenizer_.flush(); }

 private:
  text::Detokenizer detokenizer_;
};

class ModelCodec final : public TextCodec {
 public:
  ModelCodec(std::shared_ptr<const text::Tokenizer> tokenizer, ChatRenderer renderer)
      : tokenizer_(std::move(tokenizer)), renderer_(std::move(renderer)) {}

  Result<std::vector<TokenId>> encode(std::string_view text, bool add_special) const override {
    return tokenizer_->encode(text, {.add_special = add_special, .parse_special = true});
  }
  std::unique_ptr<TextDecoder> decoder(const DecodeMode& mode) const override {
    return std::make_unique<ModelDecoder>(*tokenizer_, mode);
  }
  std::string piece(TokenId id) const override { return std::string(tokenizer_->token_bytes(id)); }
  std::string spelling(TokenId id) const override { return tokenizer_->token_spelling(id); }
  bool is_special(TokenId id) const override { return tokenizer_->is_special(id); }
  size_t max_piece_bytes() const override { return tokenizer_->max_token_bytes(); }
  Result<std::string> render(const api::ChatPrompt& prompt) const override {
    if (!renderer_) {
      return fail(ErrorCode::kInvalidArgument,
                  "this model has no chat template: use /v1/completions");
    }
    return renderer_(prompt);
  }

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  ChatRenderer renderer_;
};

}  // namespace

std::shared_ptr<const TextCodec> make_model_codec(std::shared_ptr<const text::Tokenizer> tokenizer,
                                                  ChatRenderer renderer) {
  return std::make_shared<ModelCodec>(std::move(tokenizer), std::move(renderer));
}

}  // namespace baton::frontend
