// Hostile templates end with an error, not with the process: every limit, and every way around it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "jinja/json.h"
#include "jinja/template.h"

namespace baton::jinja {
namespace {

Limits small() {
  Limits limits;
  limits.max_steps = 500'000;
  limits.max_output_bytes = 100'000;
  limits.max_value_bytes = 8'000'000;
  return limits;
}

std::string error_of(const std::string& source, const Limits& limits = small()) {
  auto parsed = Template::parse(source, limits);
  if (!parsed) return parsed.error().message;
  const auto text = parsed->render({});
  return text ? "rendered " + std::to_string(text->size()) + " bytes" : text.error().message;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string repeat(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

TEST(Limits, Source) {
  Limits limits;
  limits.max_source_bytes = 10;
  EXPECT_TRUE(has(error_of("12345678901", limits), "longer than the limit of 10"));
  EXPECT_TRUE(has(error_of("1234567890", limits), "rendered 10"));
}

TEST(Limits, Steps) {
  for (const char* source : {
           "{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}",
           "{% for a in range(90000) %}{% set x = a in range(90000) %}{% endfor %}",
           "{% set s = 'ab' * 100000 %}{% for a in range(10000) %}{% set x = 'abb' in s %}{% "
           "endfor %}",
           "{% set s = 'ab' * 100000 %}{% for a in range(10000) %}{% set x = s.find('abb') %}{% "
           "endfor %}",
           "{% set s = 'ab' * 100000 %}{% for a in range(10000) %}{% set x = s|length %}{% endfor "
           "%}",
           "{% set s = 'ab' * 100000 %}{% for a in range(10000) %}{% set x = s == s ~ '' %}{% "
           "endfor %}",
           "{% set l = range(5000)|list %}{% for a in range(90000) %}{% set x = l[1:] %}{% endfor "
           "%}",
           "{% set l = range(5000)|list %}{% for a in range(90000) %}{% set x = l == l + [] %}{% "
           "endfor %}",
           "{% set l = range(9000)|list %}{% for a in range(90000) %}{% set x = l|sort %}{% endfor "
           "%}",
       }) {
    EXPECT_TRUE(has(error_of(source), "steps")) << source << ": " << error_of(source);
  }
}

TEST(Limits, Recursion) {
  EXPECT_TRUE(has(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "recursion"));
  EXPECT_TRUE(has(
      error_of(
          "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"),
      "recursion"));
  EXPECT_TRUE(
      has(error_of("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), "recursion"));
  EXPECT_TRUE(has(error_of("{% macro m() %}{{ [1]|map('string')|map('upper')|list }}{{ (m() ~ "
                           "1)|upper|lower }}{% endmacro %}{{ m() }}"),
                  "recursion"));
}

TEST(Limits, NestingOfTheSource) {
  const std::string deep[] = {
      "{{ " + repeat("(", 5000) + "1" + repeat(")", 5000) + " }}",
      "{{ " + repeat("[", 5000) + repeat("]", 5000) + " }}",
      "{{ " + repeat("{1:", 5000) + "1" + repeat("}", 5000) + " }}",
      "{{ " + repeat("not ", 5000) + "1 }}",
      "{{ " + repeat("-", 5000) + "1 }}",
      "{{ 1" + repeat(" + 1", 5000) + " }}",
      "{{ 1" + repeat(" and 1", 5000) + " }}",
      "{{ x" + repeat(".y", 5000) + " }}",
      "{{ x" + repeat("[1]", 5000) + " }}",
      "{{ x" + repeat("()", 5000) + " }}",
      "{{ x" + repeat("|upper", 5000) + " }}",
      "{{ 1" + repeat(" if 1 else 1", 5000) + " }}",
      "{{ 1" + repeat(" if 1", 5000) + " }}",
      "{{ 1" + repeat(" ** 1", 5000) + " }}",
      repeat("{% if 1 %}", 5000) + repeat("{% endif %}", 5000),
      repeat("{% for x in y %}", 5000) + repeat("{% endfor %}", 5000),
      "{% set " + repeat("(", 5000) + "a" + repeat(")", 5000) + " = 1 %}",
      "{% filter upper" + repeat("|upper", 5000) + " %}{% endfilter %}",
      repeat("{% macro m() %}", 5000) + repeat("{% endmacro %}", 5000),
  };
  for (const std::string& source : deep) {
    EXPECT_TRUE(has(error_of(source), "too deep"))
        << source.substr(0, 40) << ": " << error_of(source);
  }
  // Long is not deep.
  EXPECT_TRUE(
      has(error_of("{% if 0 %}" + repeat("{% elif 0 %}", 5000) + "{% endif %}"), "rendered"));
  EXPECT_TRUE(has(error_of("{{ 1" + repeat(" ~ 1", 5000) + " }}"), "rendered"));
  EXPECT_TRUE(
      has(error_of("{{ 1" + repeat(" < 2", 1) + repeat(" == 2", 5000) + " }}"), "rendered"));
}

TEST(Limits, NestingOfValues) {
  for (const char* source : {
           "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% "
           "endfor %}",
           "{% set ns = namespace(x={}) %}{% for i in range(90000) %}{% set ns.x = {1: ns.x} %}{% "
           "endfor %}",
           "{% set ns = namespace(x=()) %}{% for i in range(90000) %}{% set ns.x = (ns.x, ns.x) "
           "%}{% endfor %}",
           "{% set ns = namespace(x='') %}{% for i in range(90000) %}{% set ns.x = cycler(ns.x) "
           "%}{% endfor %}",
           "{% set ns = namespace(x=[1]) %}{% for i in range(900) %}{% for _ in ns.x %}{% set ns.x "
           "= [loop] %}{% endfor %}{% endfor %}",
       }) {
    EXPECT_TRUE(has(error_of(source), "deep")) << source << ": " << error_of(source);
  }
}

// Values that share parts take little memory, but have exponentially many paths.
TEST(Limits, SharedParts) {
  const std::string shared =
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% "
      "endfor %}";
  const std::string other =
      "{% set ns2 = namespace(x=[1]) %}{% for i in range(60) %}{% set ns2.x = [ns2.x, ns2.x] %}{% "
      "endfor %}";
  EXPECT_TRUE(has(error_of(shared + "{{ ns.x }}"), "more than"));
  EXPECT_TRUE(has(error_of(shared + "{{ ns.x|tojson }}"), "too long"));
  EXPECT_TRUE(has(error_of(shared + other + "{{ ns.x == ns2.x }}"), "steps"));
  EXPECT_TRUE(has(error_of(shared + other + "{{ ns.x < ns2.x }}"), "steps"));
  EXPECT_TRUE(has(error_of("{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}{% set ns.x = "
                           "(ns.x, ns.x) %}{% endfor %}"
                           "{% set n2 = namespace(x=(1,)) %}{% for i in range(60) %}{% set n2.x = "
                           "(n2.x, n2.x) %}{% endfor %}"
                           "{{ {ns.x: 1}[n2.x] }}"),
                  "steps"));
}

TEST(Limits, SizeOfValues) {
  for (const char* source : {
           "{{ 'x' * 999999999999 }}",
           "{{ [1] * 999999999999 }}",
           "{{ 'x' * 9223372036854775807 }}",
           "{{ ('x' * 900000)|replace('x', 'y' * 900000) }}",
           "{{ ('x' * 4000000) ~ ('x' * 4000000) ~ ('x' * 4000000) }}",
           "{{ range(90000)|join('x' * 10000) }}",
           "{{ ('x' * 10000).join(range(9000)|map('string')) }}",
           "{{ 'x'|center(99999999999) }}",
           "{{ 'x'.ljust(99999999999) }}",
           "{{ 'x'.zfill(99999999999) }}",
           "{{ '\\t'.expandtabs(99999999999) }}",
           "{{ '%99999999999d' % 1 }}",
           "{{ '{:99999999999}'.format(1) }}",
           "{{ [1]|batch(99999999999, 0)|list }}",
           "{{ [1]|slice(99999999999)|list }}",
           "{{ ('x' * 900000)|list }}",
           "{{ ('x' * 400000).split('x') }}",
           "{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% "
           "endfor %}",
           "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% "
           "endfor %}",
           "{% set ns = namespace(x=none) %}{% for i in range(90000) %}{% set ns.x = "
           "namespace(x=ns.x) %}{% endfor %}",
           "{% for i in range(90000) %}{% macro m() %}{% endmacro %}{% endfor %}",
       }) {
    EXPECT_TRUE(has(error_of(source), "bytes of values")) << source << ": " << error_of(source);
  }
  EXPECT_TRUE(has(error_of("{{ 'a\nb'|indent(99999999999) }}"), "wider"));
  EXPECT_TRUE(has(error_of("{{ [[1]]|tojson(indent=99999999999) }}"), "wider"));
  EXPECT_TRUE(has(error_of("{{ '%.99999999999f' % 1.0 }}"), "precision"));
  EXPECT_TRUE(has(error_of("{{ '{:.99999999999f}'.format(1.0) }}"), "precision"));
}

TEST(Limits, Output) {
  EXPECT_TRUE(
      has(error_of("{% for i in range(90000) %}0123456789{% endfor %}"), "prints more than"));
  EXPECT_TRUE(
      has(error_of("{% set x %}{% for i in range(90000) %}0123456789{% endfor %}{% endset %}"),
          "prints more than"));
  // What was captured and dropped doesn't count.
  EXPECT_TRUE(has(error_of("{% for i in range(100) %}{% set x %}" + std::string(2000, 'x') +
                           "{% endset %}{% endfor %}"),
                  "rendered 0"));
}

// Memory comes back: a loop may make more than the limit, as long as it doesn't keep it.
TEST(Limits, DroppedValuesDoNotCount) {
  EXPECT_TRUE(has(error_of("{% for i in range(100) %}{% set x = 'x' * 100000 %}{% endfor %}"),
                  "rendered 0"));
}

TEST(Limits, CirclesAreFreed) {
  // Leaks are found by the address sanitizer.
  EXPECT_TRUE(has(
      error_of("{% set ns = namespace() %}{% set ns.x = ns %}{% macro m() %}{{ ns }}{% endmacro %}"
               "{% set ns.m = m %}{% for x in [1] recursive %}{% set ns.l = loop %}{% endfor %}"
               "{% set l = ns.l %}{% macro k() %}{% for x in [1] recursive %}{% set ns.l = loop "
               "%}{% endfor %}"
               "{% set l = ns.l %}{% endmacro %}{{ k() }}"),
      "rendered"));
  EXPECT_TRUE(has(
      error_of("{% set ns = namespace() %}{% macro m() %}{% macro k() %}{{ 1 / 0 }}{% endmacro %}"
               "{% set ns.k = k %}{{ k() }}{% endmacro %}{{ m() }}"),
      "division"));
}

}  // namespace
}  // namespace baton::jinja
