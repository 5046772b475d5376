// Every entry of tests/data/api/malformed.json gets the answer it should, and the frontend goes on.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "frontend/frontend_test_support.h"

namespace baton::frontend {
namespace {

using nlohmann::json;

/// Writes {"$repeat_list":[x,n]} and {"$repeat_text":[s,n]} out.
json expand(const json& value) {
  if (value.is_object() && value.contains("$repeat_list")) {
    const json& args = value["$repeat_list"];
    return json(std::vector<json>(args[1].get<size_t>(), args[0]));
  }
  if (value.is_object() && value.contains("$repeat_text")) {
    std::string out;
    const json& args = value["$repeat_text"];
    for (int i = 0; i < args[1].get<int>(); ++i) out += args[0].get<std::string>();
    return out;
  }
  if (!value.is_object()) return value;
  json out = json::object();
  for (const auto& [key, inner] : value.items()) out[key] = expand(inner);
  return out;
}

net::HttpRequest request_of(const json& entry) {
  net::HttpRequest out{.method = entry["method"],
                       .path = entry["path"],
                       .query = {},
                       .headers = {{"content-type", "application/json"}},
                       .body = {}};
  if (entry.contains("body")) out.body = expand(entry["body"]).dump();
  if (entry.contains("body_text")) out.body = entry["body_text"];
  if (entry.contains("body_hex")) {
    const std::string hex = entry["body_hex"];
    for (size_t i = 0; i < hex.size(); i += 2) {
      out.body += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
  }
  if (!entry.contains("headers")) return out;
  for (const auto& [name, value] : entry["headers"].items()) {
    std::string lower = name;
    for (char& c : lower) c = static_cast<char>(std::tolower(c));
    out.headers[lower] = value;
    if (out.headers[lower].empty()) out.headers.erase(lower);
  }
  return out;
}

void check_answer(const json& entry, const FakeExchange& exchange) {
  ASSERT_TRUE(exchange.response.has_value());
  EXPECT_EQ(exchange.response->status, entry["status"]) << exchange.response->body;
  const json body = exchange.json();
  ASSERT_TRUE(body.contains("error"));
  const json& error = body["error"];
  ASSERT_TRUE(error["message"].is_string() && error["type"].is_string());
  ASSERT_TRUE(error.contains("param") && error.contains("code"));
  EXPECT_FALSE(error["message"].get<std::string>().empty());
  if (entry.contains("param")) {
    EXPECT_EQ(error["param"], entry["param"]) << error["message"];
  }
  if (entry.contains("message")) {
    EXPECT_NE(error["message"].get<std::string>().find(entry["message"]), std::string::npos)
        << error["message"];
  }
  if (!entry.contains("headers_expected")) return;
  for (const auto& [name, value] : entry["headers_expected"].items()) {
    ASSERT_TRUE(exchange.response->headers.contains(name)) << name;
    EXPECT_EQ(exchange.response->headers.at(name), value);
  }
}

TEST(Malformed, EveryEntryIsRefusedAndTheServerGoesOn) {
  std::ifstream in(BATON_SOURCE_DIR "/tests/data/api/malformed.json");
  const json entries = json::parse(in);
  EXPECT_GE(entries.size(), 60U);
  Fixture fixture;
  for (const json& entry : entries) {
    SCOPED_TRACE(entry["name"].get<std::string>());
    const auto exchange = fixture.send(request_of(entry));
    if (!exchange->response) exchange->wait_and_run_posted();  // a big one
    check_answer(entry, *exchange);
  }
  EXPECT_TRUE(fixture.backend.requests.empty()) << "a refused request reached the backend";
  const auto good = fixture.post("/v1/completions", R"({"prompt":"hi"})");
  ASSERT_EQ(fixture.backend.requests.size(), 1U);
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "ok", FinishReason::kStop);
  good->run_posted();
  EXPECT_EQ(good->json()["choices"][0]["text"], "ok");
}

}  // namespace
}  // namespace baton::frontend
