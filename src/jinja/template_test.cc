// What src/jinja promises beyond jinja2: messages, lines, UTF-8, 64-bit integers, threads, JSON.
#include "jinja/template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "jinja/json.h"
#include "jinja/print.h"

namespace baton::jinja {
namespace {

using Json = nlohmann::ordered_json;

Result<std::string> render(std::string_view source, const Variables& variables = {}) {
  auto parsed = Template::parse(source);
  if (!parsed) return tl::unexpected(parsed.error());
  return parsed->render(variables);
}

std::string error_of(std::string_view source) {
  const auto text = render(source);
  return text ? "rendered: " + *text : text.error().message;
}

TEST(Template, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\n{{ x.y }}"), "chat template, line 2: 'x' is undefined");
  EXPECT_EQ(error_of("a\n\n{% if x %}"),
            "chat template, line 3: unexpected end of template, tag 'endif' is missing");
  EXPECT_EQ(error_of("a\r\nb\r\n{{ 1 +\n }}"),
            "chat template, line 4: unexpected '}}', expected an expression");
  EXPECT_EQ(error_of("{% macro m() %}\n{{ 1 / 0 }}\n{% endmacro %}\n{{ m() }}"),
            "chat template, line 2: division by zero");
  EXPECT_EQ(error_of("\n{{ 'abc }}"), "chat template, line 2: missing end of string '");
  EXPECT_EQ(error_of("{% include 'x' %}"),
            "chat template, line 1: tag 'include' is not supported in chat templates");
  EXPECT_EQ(error_of("\n{{ x|nope }}"), "chat template, line 2: no filter named 'nope'");
}

TEST(Template, RaisedMessagesAreExact) {
  EXPECT_EQ(error_of("\n{{ raise_exception('Roles must alternate!') }}"), "Roles must alternate!");
  EXPECT_EQ(
      error_of("{% macro m() %}{{ raise_exception('in ' ~ 'macro') }}{% endmacro %}{{ m() }}"),
      "in macro");
  EXPECT_EQ(render("{{ raise_exception('x') }}").error().code, ErrorCode::kInvalidArgument);
}

TEST(Template, RefusesWhatIsNotUtf8) {
  EXPECT_EQ(Template::parse("a\xFFz").error().message, "template is not valid UTF-8");
  EXPECT_FALSE(Template::parse("\xC0\x80"));      // overlong
  EXPECT_FALSE(Template::parse("\xED\xA0\x80"));  // a surrogate
  EXPECT_FALSE(Template::parse("\xE2\x82"));      // cut
}

TEST(Template, IntegersOverflowLoudly) {
  EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}"),
            "chat template, line 1: integer overflow: the result of '+' does not fit 64 bits");
  for (const char* source :
       {"{{ -9223372036854775807 - 2 }}", "{{ 9223372036854775807 * 2 }}", "{{ 2 ** 63 }}",
        "{{ 10 ** 100 }}", "{{ -(-9223372036854775807 - 1) }}",
        "{{ (-9223372036854775807 - 1) // -1 }}", "{{ (-9223372036854775807 - 1)|abs }}",
        "{{ 9223372036854775808 }}", "{{ '9223372036854775808'|int }}", "{{ 1e300|int }}"}) {
    EXPECT_FALSE(render(source)) << source;
  }
  EXPECT_EQ(render("{{ 2 ** 62 }} {{ (-2) ** 63 }} {{ (-9223372036854775807 - 1) % -1 }}").value(),
            "4611686018427387904 -9223372036854775808 0");
}

TEST(Template, UnpairedSurrogatesAreRefused) {
  EXPECT_EQ(render("{{ '\\ud83d\\ude00' }}").value(), "😀");
  EXPECT_FALSE(render("{{ '\\ud83d' }}"));
  EXPECT_FALSE(render("{{ '\\xZZ' }}"));
  EXPECT_FALSE(render("{{ '\\U00110000' }}"));
}

TEST(Template, TheLaterVariableWins) {
  EXPECT_EQ(render("{{ x }}", {{"x", Value(int64_t{1})}, {"x", Value(int64_t{2})}}).value(), "2");
  EXPECT_EQ(render("{{ range }}", {{"range", Value(int64_t{1})}}).value(), "1");
}

TEST(Template, CopiesShareTheParsedForm) {
  const Template first = Template::parse("{{ 1 + 1 }}").value();
  const Template second = first;
  EXPECT_EQ(second.render({}).value(), "2");
}

TEST(Template, ThreadsShareTemplateAndVariables) {
  const Template shared =
      Template::parse("{% for m in messages %}{{ m.role ~ ':' ~ m.content|upper }};{% endfor %}")
          .value();
  const Variables variables = {
      {"messages",
       from_json(Json::parse(R"([{"role":"a","content":"x"},{"role":"b","content":"y"}])"))
           .value()}};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) EXPECT_EQ(shared.render(variables).value(), "a:X;b:Y;");
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Template, NowIsTheClockByDefault) {
  const std::string year = render("{{ strftime_now('%Y') }}").value();
  EXPECT_EQ(year.size(), 4U);
  EXPECT_FALSE(render("{{ strftime_now('%9999999d') }}"));
  EXPECT_EQ(render("{{ strftime_now('') }}").value(), "");
}

TEST(FromJson, Converts) {
  const Json json =
      Json::parse(R"({"z": null, "a": [true, -1, 2.0, "é", {}], "n": 9223372036854775807})");
  EXPECT_EQ(render("{{ x }}", {{"x", from_json(json).value()}}).value(),
            "{'z': None, 'a': [True, -1, 2.0, 'é', {}], 'n': 9223372036854775807}");
}

TEST(FromJson, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(from_json(Json(18446744073709551615U)));
  EXPECT_FALSE(from_json(Json(std::string("\xFF"))));
  EXPECT_FALSE(from_json(Json::parse(std::string(300, '[') + std::string(300, ']'))));
  EXPECT_TRUE(from_json(Json::parse(std::string(150, '[') + std::string(150, ']'))));
}

TEST(FromJson, ManyKeys) {
  Json json = Json::object();
  for (int i = 0; i < 100; ++i) json["k" + std::to_string(i)] = i;
  EXPECT_EQ(render("{{ x.k0 }} {{ x.k57 }} {{ x['k99'] }} {{ x.k100 is defined }} {{ x|length }}",
                   {{"x", from_json(json).value()}})
                .value(),
            "0 57 99 False 100");
}

TEST(FloatRepr, AsPython) {
  EXPECT_EQ(float_repr(5e-324), "5e-324");
  EXPECT_EQ(float_repr(1.7976931348623157e308), "1.7976931348623157e+308");
  EXPECT_EQ(float_repr(9007199254740993.0), "9007199254740992.0");
  EXPECT_EQ(float_repr(-1234.5), "-1234.5");
  EXPECT_EQ(float_repr(0.001), "0.001");
}

}  // namespace
}  // namespace baton::jinja
