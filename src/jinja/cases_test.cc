// Every golden case: templates of real models on conversations, rendered by jinja2 under
// transformers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "jinja/json.h"
#include "jinja/template.h"

namespace baton::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path shared_folder() {
  const char* const folder = std::getenv("BATON_SHARED");
  return folder != nullptr ? folder : std::filesystem::path(BATON_SOURCE_DIR) / ".." / "shared";
}

std::tm parse_time(const std::string& text) {
  std::tm time{};
  strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  std::mktime(&time);
  return time;
}

Variables variables_of(const Json& test) {
  Variables variables;
  const auto add = [&](const std::string& name, const Json& json) {
    variables.emplace_back(name, from_json(json).value());
  };
  add("documents", nullptr);
  for (const char* name :
       {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
    add(name, test.at(name));
  }
  for (const auto& [name, value] : test.at("extra").items()) add(name, value);
  return variables;
}

/// What differs from the expectation, or nothing.
std::string check(const Template& parsed, const Json& test) {
  RenderOptions options;
  options.now = parse_time(test.at("now").get<std::string>());
  const auto text = parsed.render(variables_of(test), options);
  if (test.contains("expected")) {
    if (!text) return "failed: " + text.error().message;
    return *text == test.at("expected").get<std::string>()
               ? ""
               : "rendered:\n" + *text + "\nexpected:\n" + test.at("expected").get<std::string>();
  }
  const auto expected = test.at("expected_error").get<std::string>();
  if (text) return "rendered, but must fail with: " + expected;
  const bool is_exact = test.at("error_type") == "raise_exception";
  return !is_exact || text.error().message == expected
             ? ""
             : "failed with: " + text.error().message + "\nexpected: " + expected;
}

void run_cases(const Json& cases) {
  std::map<std::string, Template> templates;
  int n_failed = 0;
  for (const Json& test : cases) {
    const auto name = test.at("template_name").get<std::string>();
    if (!templates.contains(name)) {
      auto parsed = Template::parse(test.at("template").get<std::string>());
      ASSERT_TRUE(parsed) << name << ": " << parsed.error().message;
      templates.emplace(name, std::move(*parsed));
    }
    const std::string difference = check(templates.at(name), test);
    EXPECT_EQ(difference, "") << name << " " << test.at("case");
    if (!difference.empty() && ++n_failed > 20) FAIL() << "more than 20 failures";
  }
}

TEST(Cases, SmolLm2) {
  std::ifstream file(std::filesystem::path(BATON_SOURCE_DIR) /
                     "tests/data/jinja/smollm2_cases.json");
  const Json cases = Json::parse(file);
  EXPECT_GE(cases.at("cases").size(), 20U);
  run_cases(cases.at("cases"));
}

TEST(Cases, AllSharedTemplates) {
  const auto path = shared_folder() / "data/chat_templates/cases.json.gz";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "skipped: no " << path;
  FILE* const pipe = popen(("gzip -dc '" + path.string() + "'").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  char buffer[1 << 16];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  ASSERT_EQ(pclose(pipe), 0);
  const Json cases = Json::parse(text);
  EXPECT_EQ(cases.at("cases").size(), 2252U);
  run_cases(cases.at("cases"));
}

}  // namespace
}  // namespace baton::jinja
