// The codec and the chat renderer over a real tokenizer and template; a small vocabulary.
#include "frontend/model_codec.h"

#include <gtest/gtest.h>

#include "frontend/chat_renderer.h"
#include "text/chat_template.h"
#include "text/test_vocab.h"

namespace baton::frontend {
namespace {

std::shared_ptr<const text::Tokenizer> tokenizer() {
  auto made = text::Tokenizer::create(text::test_byte_bpe());
  EXPECT_TRUE(made.has_value());
  return std::move(*made);
}

TEST(ModelCodec, SpecialTokensInTextAreParsed) {
  const auto codec = make_model_codec(tokenizer(), {});
  const auto ids = codec->encode("<|im_start|>hello<|im_end|>", false);
  ASSERT_TRUE(ids.has_value());
  EXPECT_EQ(ids->front(), 1);
  EXPECT_EQ(ids->back(), 2);
  EXPECT_TRUE(codec->is_special(1));
  EXPECT_EQ(codec->decode(*ids, {.skip_special = false}), "<|im_start|>hello<|im_end|>");
  EXPECT_EQ(codec->decode(*ids, {.skip_special = true}), "hello");
  EXPECT_EQ(codec->piece(1), "<|im_start|>");
}

TEST(ModelCodec, DecoderHoldsIncompleteCharacters) {
  const auto codec = make_model_codec(tokenizer(), {});
  const auto decoder = codec->decoder({});
  const TokenId first_byte = 4 + 0xE2;
  EXPECT_EQ(codec->piece(first_byte), "\xE2");
  EXPECT_EQ(decoder->push(first_byte), "");
  EXPECT_EQ(decoder->finish(), "\uFFFD");
}

TEST(ModelCodec, ChatNeedsATemplate) {
  const auto codec = make_model_codec(tokenizer(), {});
  const auto text = codec->render({.messages = {{.role = "user", .content = "a"}}});
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
  const auto with = make_model_codec(
      tokenizer(), [](const api::ChatPrompt& prompt) { return prompt.messages[0].content; });
  EXPECT_EQ(with->render({.messages = {{.role = "user", .content = "a"}}}).value(), "a");
}

TEST(ChatRenderer, GivesTheTemplateEveryField) {
  auto parsed = text::ChatTemplate::create(
      "{{ bos_token }}{% for m in messages %}[{{ m.role }}|{{ m.name }}|{{ m.content }}]{% endfor "
      "%}"
      "{{ style }}{% if add_generation_prompt %}>{% endif %}",
      "<b>", "<e>");
  ASSERT_TRUE(parsed.has_value());
  const ChatRenderer render =
      make_chat_renderer(std::make_shared<const text::ChatTemplate>(std::move(*parsed)));
  api::ChatPrompt prompt{.messages = {{.role = "system", .content = "s"},
                                      {.role = "user", .content = "hi", .name = "bob"}},
                         .template_kwargs = R"({"style":"calm"})"};
  EXPECT_EQ(render(prompt).value(), "<b>[system||s][user|bob|hi]calm>");
  prompt.add_generation_prompt = false;
  prompt.continue_final_message = true;
  EXPECT_EQ(render(prompt).value(), "<b>[system||s][user|bob|hi");
}

TEST(ChatRenderer, TheTemplatesOwnErrorComesThrough) {
  auto parsed = text::ChatTemplate::create("{{ raise_exception('no such role') }}", "", "");
  ASSERT_TRUE(parsed.has_value());
  const auto text = make_chat_renderer(std::make_shared<const text::ChatTemplate>(
      std::move(*parsed)))({.messages = {{.role = "user", .content = "a"}}});
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().message, "no such role");
  EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::frontend
