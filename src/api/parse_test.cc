// What well-formed requests mean. What is refused stands in tests/data/api/malformed.json.
#include "api/parse.h"

#include <gtest/gtest.h>

namespace baton::api {
namespace {

RequestLimits limits() {
  RequestLimits out;
  out.n_vocab = 100;
  return out;
}

CompletionRequest completion(const std::string& fields) {
  auto request = parse_completion_request(R"({"prompt":"hi")" + fields + "}", limits());
  EXPECT_TRUE(request.has_value()) << fields << ": " << (request ? "" : request.error().message);
  return request ? *request : CompletionRequest{};
}

ChatRequest chat(const std::string& fields) {
  auto request = parse_chat_request(
      R"({"messages":[{"role":"user","content":"hi"}])" + fields + "}", limits());
  EXPECT_TRUE(request.has_value()) << fields << ": " << (request ? "" : request.error().message);
  return request ? *request : ChatRequest{};
}

TEST(ParseCompletion, PromptShapes) {
  const auto prompts = [](const std::string& json) {
    auto request = parse_completion_request("{\"prompt\":" + json + "}", limits());
    EXPECT_TRUE(request.has_value()) << json;
    return request ? request->prompts : std::vector<Prompt>{};
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(prompts("\"a\""), std::vector<Prompt>{"a"});
  EXPECT_EQ(prompts("[\"a\",\"b\"]"), (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(prompts("[0,99]"), std::vector<Prompt>{(Ids{0, 99})});
  EXPECT_EQ(prompts("[[1],[2,3]]"), (std::vector<Prompt>{Ids{1}, Ids{2, 3}}));
  EXPECT_EQ(prompts("\"\\u0000\""), std::vector<Prompt>{std::string(1, '\0')});
}

// A list of its own is read by another way than one among several.
TEST(ParseCompletion, AListOfIdsIsReadAsAmongOthers) {
  for (const std::string list : {"[1,2]",        "[ 1 ,\t2\n]",  "[0]",
                                 "[99]",         "[100]",        "[1,2,100,3]",
                                 "[1,-1]",       "[-0]",         "[1,1.5]",
                                 "[1,1e1]",      "[1,null]",     "[1,true]",
                                 "[1,\"2\"]",    "[1,[2]]",      "[1,{}]",
                                 "[2147483647]", "[2147483648]", "[99999999999999999999]",
                                 "[01]",         "[1,]",         "[,1]",
                                 "[1 2]",        "[1",           "[1}",
                                 "[1,"}) {
    SCOPED_TRACE(list);
    const auto alone = parse_completion_request("{\"prompt\" : " + list + "}", limits());
    const auto nested = parse_completion_request("{\"prompt\":[" + list + "]}", limits());
    ASSERT_EQ(alone.has_value(), nested.has_value());
    if (alone) {
      EXPECT_EQ(alone->prompts, nested->prompts);
      continue;
    }
    std::string expected = nested.error().message;
    if (expected.find("not valid JSON") != expected.npos) {
      EXPECT_NE(alone.error().message.find("not valid JSON"), std::string::npos);
      continue;
    }
    if (const size_t at = expected.find("prompt[0]"); at != expected.npos)
      expected.erase(at + 6, 3);
    EXPECT_EQ(alone.error().message, expected);
    EXPECT_EQ(alone.error().param, "prompt");
  }
}

TEST(ParseCompletion, TheLastOfEqualKeysCounts) {
  const auto prompt = [](const std::string& body) {
    auto request = parse_completion_request(body, limits());
    EXPECT_TRUE(request.has_value()) << body;
    return request ? request->prompts : std::vector<Prompt>{};
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(prompt(R"({"prompt":[1,2],"prompt":[3]})"), std::vector<Prompt>{Ids{3}});
  EXPECT_EQ(prompt(R"({"prompt":[1,2],"prompt":"a"})"), std::vector<Prompt>{"a"});
  EXPECT_EQ(prompt(R"({"prompt":"a","prompt":[1,2]})"), (std::vector<Prompt>{Ids{1, 2}}));
  EXPECT_EQ(prompt(R"({"prompt":[1,2],"\u0070rompt":"a"})"), std::vector<Prompt>{"a"});
  EXPECT_EQ(prompt(R"({"user":"\"prompt\":[1]","prompt":"a"})"), std::vector<Prompt>{"a"});
  EXPECT_EQ(prompt(R"({"metadata":{"prompt":[1]},"prompt":[2]})"), std::vector<Prompt>{Ids{2}});
}

TEST(ParseCompletion, OnlyTheLastKeyThatIsPromptNamesAListOfIds) {
  for (const char* body :
       {R"({"a\"prompt":[1,2]})", R"({"prompt":[1,2],"prompt":null})",
        R"({"prompt":[1,2],"\u0070rompt":null})", R"({"\u0070rompt":[1],"prompt":null})"}) {
    EXPECT_FALSE(parse_completion_request(body, limits())) << body;
  }
  const auto request = parse_completion_request(R"({"prompt":[1,2],"\u0070rompt":[3]})", limits());
  ASSERT_TRUE(request);
  EXPECT_EQ(request->prompts, (std::vector<Prompt>{std::vector<TokenId>{3}}));
}

TEST(ParseCompletion, AFaultBehindAListOfIdsIsNamedWhereItStands) {
  const auto request = parse_completion_request(R"({"prompt":[1,2,3,4,5,6,7],"n":x})", limits());
  ASSERT_FALSE(request.has_value());
  EXPECT_NE(request.error().message.find("column 31"), std::string::npos)
      << request.error().message;
}

TEST(ParseCompletion, NullMeansAbsent) {
  for (const char* field : {"model",
                            "max_tokens",
                            "temperature",
                            "top_p",
                            "n",
                            "best_of",
                            "stop",
                            "logit_bias",
                            "seed",
                            "stream",
                            "stream_options",
                            "suffix",
                            "echo",
                            "logprobs",
                            "user",
                            "tools",
                            "metadata",
                            "stop_token_ids",
                            "presence_penalty",
                            "response_format",
                            "top_k",
                            "min_tokens"}) {
    const CompletionRequest request = completion(std::string(",\"") + field + "\":null");
    EXPECT_EQ(request.params.n, 1) << field;
    EXPECT_EQ(request.params.sampling.temperature, 1.0F) << field;
    EXPECT_FALSE(request.params.max_tokens.has_value()) << field;
    EXPECT_FALSE(request.params.has_seed) << field;
  }
}

TEST(ParseCompletion, UnknownFieldsAndNoOpsAreFine) {
  completion(R"(,"no_such_field":{"deep":[1]},"user":"u","metadata":{"k":"v"},"store":true)");
  completion(R"(,"tools":[],"functions":[],"tool_choice":"none","parallel_tool_calls":true)");
  completion(R"(,"response_format":{"type":"text"},"modalities":["text"],"service_tier":"auto")");
  completion(R"(,"use_beam_search":false,"guided_json":"","bad_words":[])");
}

TEST(ParseCompletion, EdgesOfRangesAreFine) {
  EXPECT_EQ(completion(",\"temperature\":0").params.sampling.temperature, 0.0F);
  EXPECT_EQ(completion(",\"temperature\":2").params.sampling.temperature, 2.0F);
  EXPECT_EQ(completion(",\"top_p\":1").params.sampling.top_p, 1.0F);
  EXPECT_EQ(completion(",\"top_k\":-1").params.sampling.top_k, 0);
  EXPECT_EQ(completion(",\"top_k\":0").params.sampling.top_k, 0);
  EXPECT_EQ(completion(",\"top_k\":2147483647").params.sampling.top_k, 2147483647);
  EXPECT_EQ(completion(",\"min_p\":1").params.sampling.min_p, 1.0F);
  EXPECT_EQ(completion(",\"presence_penalty\":-2").params.sampling.presence_penalty, -2.0F);
  EXPECT_EQ(completion(",\"n\":128").params.n, 128);
  EXPECT_EQ(completion(",\"logprobs\":20").params.n_logprobs, 20);
  EXPECT_EQ(completion(",\"logprobs\":0").params.n_logprobs, 0);
  EXPECT_EQ(completion(",\"max_tokens\":9223372036854775807").params.max_tokens, INT64_MAX);
  EXPECT_EQ(completion(",\"seed\":-9223372036854775808").params.sampling.seed, uint64_t{1} << 63);
  EXPECT_EQ(completion(",\"logit_bias\":{\"0\":100,\"99\":-100}").params.sampling.logit_bias.size(),
            2U);
  EXPECT_EQ(completion(",\"max_tokens\":0,\"echo\":true").params.max_tokens, 0);
  EXPECT_TRUE(completion(",\"stop\":[]").params.stop.empty());
  EXPECT_EQ(completion(",\"stop\":\"x\"").params.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(completion(",\"stop_token_ids\":[0,99]").params.stop_token_ids,
            (std::vector<TokenId>{0, 99}));
  EXPECT_EQ(completion(",\"min_tokens\":4,\"max_tokens\":4").params.min_tokens, 4);
}

TEST(ParseCompletion, TheLastOfDuplicateKeysWins) {
  EXPECT_EQ(completion(",\"n\":2,\"n\":3").params.n, 3);
}

TEST(ParseCompletion, NestingIsCountedOutsideOfStringsOnly) {
  const std::string brackets(500, '[');
  EXPECT_EQ(completion(",\"user\":\"\\\"" + brackets + "\"").prompts.size(), 1U);
  RequestLimits few = limits();
  few.max_values = 2;
  EXPECT_TRUE(parse_completion_request(R"({"prompt":[1,2],"user":",,,"})", few).has_value());
  EXPECT_FALSE(parse_completion_request(R"({"prompt":[1,2,3],"user":""})", few).has_value());
  RequestLimits tight = limits();
  tight.max_containers = 3;
  EXPECT_TRUE(parse_completion_request(R"({"prompt":[[1],[2]]})", tight)
                  .error()
                  .message.find("more than 3") != std::string::npos);
}

TEST(ParseCompletion, StreamOptions) {
  const auto params =
      completion(
          R"(,"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false})")
          .params;
  EXPECT_TRUE(params.stream && params.include_usage);
  EXPECT_FALSE(completion(R"(,"stream":true,"stream_options":{})").params.include_usage);
}

TEST(ParseChat, Messages) {
  auto request = parse_chat_request(
      R"({"messages":[{"role":"developer","content":"d"},{"role":"user","content":[],"name":"bob"},
          {"role":"assistant","content":"","tool_calls":[],"refusal":null},
          {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})",
      limits());
  ASSERT_TRUE(request.has_value()) << request.error().message;
  const auto& messages = request->prompt.messages;
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_EQ(messages[1].name, "bob");
  EXPECT_EQ(messages[2].content, "");
  EXPECT_EQ(messages[3].content, "a\nb");
}

TEST(ParseChat, Lengths) {
  EXPECT_EQ(chat(",\"max_tokens\":7").params.max_tokens, 7);
  EXPECT_EQ(chat(",\"max_completion_tokens\":7").params.max_tokens, 7);
  EXPECT_EQ(chat(",\"max_completion_tokens\":7,\"max_tokens\":7").params.max_tokens, 7);
  EXPECT_EQ(chat("").params.max_tokens, std::nullopt);
}

TEST(ParseChat, Logprobs) {
  EXPECT_EQ(chat("").params.n_logprobs, std::nullopt);
  EXPECT_EQ(chat(",\"logprobs\":false").params.n_logprobs, std::nullopt);
  EXPECT_EQ(chat(",\"logprobs\":true").params.n_logprobs, 0);
  EXPECT_EQ(chat(",\"logprobs\":true,\"top_logprobs\":20").params.n_logprobs, 20);
}

TEST(ParseChat, TemplateOptions) {
  EXPECT_TRUE(chat("").prompt.add_generation_prompt);
  EXPECT_EQ(chat("").prompt.template_kwargs, "{}");
  EXPECT_FALSE(chat(",\"continue_final_message\":true").prompt.add_generation_prompt);
  EXPECT_FALSE(chat(",\"add_generation_prompt\":false").prompt.add_generation_prompt);
  EXPECT_EQ(chat(R"(,"chat_template_kwargs":{"a": [1, null]})").prompt.template_kwargs,
            R"({"a":[1,null]})");
}

TEST(ParseChat, TemplateOptionsKeepTheOrderOfKeys) {
  const std::string kwargs = R"({"z":{"y":1,"b":[{"q":1,"c":2}]},"a":"x","m":null})";
  EXPECT_EQ(chat(",\"chat_template_kwargs\":" + kwargs).prompt.template_kwargs, kwargs);
  EXPECT_EQ(chat(",\"user\":\"u\",\"chat_template_kwargs\":" + kwargs + ",\"n\":1")
                .prompt.template_kwargs,
            kwargs);
  const std::string body =
      R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":)" + kwargs + "}";
  EXPECT_EQ(std::get<ChatPrompt>(parse_tokenize_request(body, limits())->input).template_kwargs,
            kwargs);
}

TEST(ParseChat, TemplateOptionsAreFew) {
  const auto list = [](int n, const std::string& value) {
    std::string out = "[" + value;
    for (int i = 1; i < n; ++i) out += "," + value;
    return out + "]";
  };
  const auto parse = [](const std::string& messages, const std::string& kwargs) {
    return parse_chat_request(
        "{\"messages\":" + messages + R"(,"chat_template_kwargs":{"a":)" + kwargs + "}}", limits());
  };
  const std::string message = R"({"role":"user","content":"a"})";
  // The object, its list, and what that holds.
  EXPECT_TRUE(parse(list(2000, message), list(1022, "1")).has_value());
  for (const std::string& too_many :
       {list(1023, "1"), list(100'000, "{}"), list(1000, R"({"a":1})")}) {
    const auto refused = parse(list(1, message), too_many);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().param, "chat_template_kwargs");
  }
}

TEST(ParseTokenize, DefaultsOfAddSpecialTokens) {
  EXPECT_TRUE(parse_tokenize_request(R"({"prompt":""})", limits())->add_special_tokens);
  EXPECT_FALSE(parse_tokenize_request(R"({"messages":[{"role":"user","content":"a"}]})", limits())
                   ->add_special_tokens);
}

TEST(Errors, BodyAndCodes) {
  EXPECT_EQ(
      error_body(invalid("n", "bad \"{}\"", 1).value()),
      R"({"error":{"message":"bad \"1\"","type":"invalid_request_error","param":"n","code":null}})");
  EXPECT_EQ(from_error({.code = ErrorCode::kExhausted, .message = "full"}).status, 429);
  EXPECT_GT(from_error({.code = ErrorCode::kExhausted, .message = "full"}).retry_after_s, 0);
  EXPECT_EQ(from_error({.code = ErrorCode::kCorrupt, .message = "x"}).status, 500);
}

}  // namespace
}  // namespace baton::api
