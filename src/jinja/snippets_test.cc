// Short templates against what jinja2 makes of them (tests/data/jinja/make_snippets.py).
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "jinja/json.h"
#include "jinja/template.h"

namespace baton::jinja {
namespace {

using Json = nlohmann::ordered_json;

Result<std::string> render(const std::string& source, const Variables& variables) {
  auto parsed = Template::parse(source);
  if (!parsed) return tl::unexpected(parsed.error());
  RenderOptions options;
  std::tm now{};
  strptime("2026-01-15T12:30:00", "%Y-%m-%dT%H:%M:%S", &now);
  options.now = now;
  return parsed->render(variables, options);
}

TEST(Snippets, AsJinja2) {
  std::ifstream file(std::filesystem::path(BATON_SOURCE_DIR) / "tests/data/jinja/snippets.json");
  const Json data = Json::parse(file);
  Variables variables;
  for (const auto& [name, value] : data.at("context").items()) {
    variables.emplace_back(name, from_json(value).value());
  }
  EXPECT_GE(data.at("cases").size(), 300U);
  for (const Json& test : data.at("cases")) {
    const auto source = test.at("source").get<std::string>();
    const auto text = render(source, variables);
    if (test.contains("text")) {
      EXPECT_EQ(text ? *text : "error: " + text.error().message, test.at("text").get<std::string>())
          << source;
    } else {
      EXPECT_FALSE(text) << source << "\nrendered: " << *text
                         << "\nmust fail: " << test.at("error").get<std::string>();
    }
  }
}

}  // namespace
}  // namespace baton::jinja
