#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "text/render_lines.h"

namespace baton::text {
namespace {

using Json = nlohmann::ordered_json;

// The template of SmolLM2 in short.
constexpr std::string_view kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + "
    "'\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

ChatTemplate make(std::string_view source) {
  auto made = ChatTemplate::create(source, "<s>", "</s>");
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

Json chat(std::initializer_list<std::pair<const char*, const char*>> messages) {
  Json json = Json::array();
  for (const auto& [role, content] : messages)
    json.push_back({{"role", role}, {"content", content}});
  return json;
}

Result<std::string> go_on(std::string_view source, const Json& messages) {
  ChatInput input;
  input.messages = &messages;
  input.add_generation_prompt = false;
  input.continue_final_message = true;
  return make(source).render(input);
}

TEST(ChatTemplate, Renders) {
  const Json messages = chat({{"user", "Hi"}});
  ChatInput input;
  input.messages = &messages;
  EXPECT_EQ(make(kChatMl).render(input).value(),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  input.add_generation_prompt = false;
  EXPECT_EQ(make(kChatMl).render(input).value(), "<|im_start|>user\nHi<|im_end|>\n");
}

TEST(ChatTemplate, Variables) {
  const Json messages = chat({{"user", "Hi"}});
  const Json kwargs = {{"x", 1}, {"messages", "no"}, {"eos_token", "<eos>"}};
  ChatInput input;
  input.messages = &messages;
  input.kwargs = &kwargs;
  input.bos_token = "<bos>";
  const auto text =
      make("{{ [bos_token, eos_token, x, tools, documents, messages|length] }}").render(input);
  EXPECT_EQ(text.value(), "['<bos>', '<eos>', 1, None, None, 1]");
}

TEST(ChatTemplate, KeepsTheOrderOfKeys) {
  const Json messages = chat({{"user", "Hi"}});
  const Json tools = Json::parse(R"([{"z": 1, "a": 2, "m": {"y": 3, "b": 4}}])");
  ChatInput input;
  input.messages = &messages;
  input.tools = &tools;
  EXPECT_EQ(make("{{ tools | tojson }}").render(input).value(),
            R"([{"z": 1, "a": 2, "m": {"y": 3, "b": 4}}])");
}

TEST(ChatTemplate, ContinuesTheFinalMessage) {
  const Json messages = chat({{"user", "Sure"}, {"assistant", "Sure, "}});
  EXPECT_EQ(go_on(kChatMl, messages).value(),
            "<|im_start|>user\nSure<|im_end|>\n<|im_start|>assistant\nSure, ");
  // A template that trims, an empty content, a content that stands elsewhere too.
  constexpr std::string_view kTrims =
      "{% for m in messages %}[{{ m.content|trim }}]{% endfor %} end";
  EXPECT_EQ(go_on(kTrims, messages).value(), "[Sure][Sure,");
  EXPECT_EQ(go_on(kTrims, chat({{"user", "a"}, {"assistant", ""}})).value(), "[a][");
  EXPECT_EQ(go_on(kTrims, chat({{"user", "a"}, {"assistant", "end"}})).value(), "[a][end");
}

TEST(ChatTemplate, ContinuesTextParts) {
  const Json messages = Json::parse(
      R"([{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])");
  EXPECT_EQ(go_on("{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}", messages).value(),
            "<a><b");
}

TEST(ChatTemplate, RefusesToContinue) {
  EXPECT_FALSE(go_on(kChatMl, Json::array()));
  EXPECT_FALSE(go_on(kChatMl, Json::parse(R"([{"role":"assistant"}])")));
  EXPECT_FALSE(go_on(kChatMl, Json::parse(R"([{"role":"assistant","content":5}])")));
  EXPECT_FALSE(go_on("fixed text", chat({{"assistant", "a"}})));
  const Json messages = chat({{"assistant", "a"}});
  ChatInput input;
  input.messages = &messages;
  input.continue_final_message = true;
  const auto both = make(kChatMl).render(input);
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().message,
            "'add_generation_prompt' and 'continue_final_message' can't both be true");
}

TEST(ChatTemplate, ErrorsAreTheClients) {
  const Json messages = chat({{"user", "Hi"}});
  ChatInput input;
  EXPECT_EQ(make("x").render(input).error().code, ErrorCode::kInvalidArgument);
  input.messages = &messages;
  const auto raised = make("{{ raise_exception('Only system, please') }}").render(input);
  ASSERT_FALSE(raised);
  EXPECT_EQ(raised.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(raised.error().message, "Only system, please");
  const auto failed = make("\n{{ messages[0].nothing.at_all }}").render(input);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(failed.error().message,
            "chat template, line 2: 'dict object' has no attribute 'nothing'");
  const Json text = "Hi";
  input.messages = &text;
  EXPECT_EQ(make("x").render(input).error().message, "'messages' must be a list");
  input.messages = &messages;
  input.kwargs = &text;
  EXPECT_EQ(make("x").render(input).error().message, "'chat_template_kwargs' must be an object");
  const Json huge = {{"n", 18446744073709551615U}};
  input.kwargs = &huge;
  EXPECT_EQ(
      make("x").render(input).error().message,
      "'chat_template_kwargs': number 18446744073709551615 does not fit a signed 64-bit integer");
}

TEST(ChatTemplate, ATemplateThatCanNotBeParsedIsTheFiles) {
  const std::string long_name(5000, 'x');
  for (const std::string& source :
       {std::string("{% if %}"), std::string("\xFF"), "{{ a|" + long_name + " }}",
        std::string("{{ \x1B[31m }}"), std::string(4 << 20, ' ')}) {
    const auto made = ChatTemplate::create(source, "", "");
    ASSERT_FALSE(made) << source.substr(0, 20);
    EXPECT_EQ(made.error().code, ErrorCode::kCorrupt);
    EXPECT_LT(made.error().message.size(), 300U);
    for (const char c : made.error().message) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  }
}

TEST(ChatTemplate, RendersOnManyThreads) {
  const ChatTemplate shared = make(kChatMl);
  const Json messages = chat({{"user", "Hi"}});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      ChatInput input;
      input.messages = &messages;
      for (int k = 0; k < 200; ++k) {
        EXPECT_EQ(shared.render(input).value(),
                  "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

std::vector<Json> run_lines(const std::string& lines, const ChatTemplate& chat_template) {
  std::istringstream in(lines);
  std::ostringstream out;
  render_lines(in, out, chat_template);
  std::vector<Json> answers;
  std::istringstream read(out.str());
  for (std::string line; std::getline(read, line);) answers.push_back(Json::parse(line));
  return answers;
}

TEST(RenderLines, AnswersEachLine) {
  const auto answers = run_lines(
      R"({"messages":[{"role":"user","content":"Hi"}],"bos_token":"<b>","now":"2026-01-15T12:30:00","tools":null})"
      "\nnot json\n[]\n"
      R"({"messages":5})"
      "\n"
      R"({"messages":[],"add_generation_prompt":"yes"})"
      "\n"
      R"({"messages":[],"now":"yesterday"})"
      "\n"
      R"({"messages":[],"add_generation_prompt":false,"chat_template_kwargs":{"x":1.0}})"
      "\n",
      make("{{ bos_token ~ eos_token ~ strftime_now('%a %d %b %Y %H:%M') if x is undefined else x "
           "}}{{ add_generation_prompt }}"));
  ASSERT_EQ(answers.size(), 7U);
  EXPECT_EQ(answers[0], Json({{"text", "<b></s>Thu 15 Jan 2026 12:30True"}}));
  EXPECT_EQ(answers[1], Json({{"error", "the line is not valid JSON in UTF-8"}}));
  EXPECT_EQ(answers[2], Json({{"error", "the line must be a JSON object"}}));
  EXPECT_EQ(answers[3], Json({{"error", "'messages' must be a list"}}));
  EXPECT_EQ(answers[4], Json({{"error", "'add_generation_prompt' must be a bool"}}));
  EXPECT_EQ(answers[5], Json({{"error", "'now' must be a time like \"2026-01-15T12:00:00\""}}));
  EXPECT_EQ(answers[6], Json({{"text", "1.0False"}}));
}

TEST(RenderLines, GoldenCases) {
  std::ifstream file(std::filesystem::path(BATON_SOURCE_DIR) /
                     "tests/data/jinja/smollm2_cases.json");
  const Json cases = Json::parse(file).at("cases");
  ASSERT_FALSE(cases.empty());
  const ChatTemplate chat_template = make(cases[0].at("template").get<std::string>());
  std::string lines;
  for (Json line : cases) {
    line["chat_template_kwargs"] = line.at("extra");
    lines += line.dump() + "\n";
  }
  const auto answers = run_lines(lines, chat_template);
  ASSERT_EQ(answers.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].contains("expected")) {
      EXPECT_EQ(answers[i].value("text", ""), cases[i].at("expected")) << cases[i].at("case");
    } else {
      EXPECT_TRUE(answers[i].contains("error")) << cases[i].at("case");
    }
  }
}

}  // namespace
}  // namespace baton::text
