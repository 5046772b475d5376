// map, select, reject, selectattr, rejectattr: filters that apply another filter or a test.
#include <algorithm>
#include <unordered_map>

#include "jinja/filters.h"

namespace baton::jinja {
namespace {

/// Takes the first positional argument, which names a filter or test.
Eval<std::string> take_name(Interpreter& interpreter, CallArgs& args) {
  JINJA_TRY(std::string name, interpreter.text(args.positional.front()));
  args.positional.erase(args.positional.begin());
  return name;
}

Eval<Value> map_attribute(Interpreter& interpreter, const std::vector<Value>& values,
                          const CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("map", args, {"attribute", "default"}));
  const Value* const otherwise = bound.given(1) ? bound[1] : nullptr;
  std::vector<Value> mapped;
  for (const Value& value : values) {
    JINJA_TRY(Value attribute, attribute_path(interpreter, value, bound[0], otherwise));
    mapped.push_back(std::move(attribute));
    JINJA_CHECK(interpreter.spend(1));
  }
  return interpreter.list(std::move(mapped), ListKind::kGenerator);
}

Eval<Value> map(Interpreter& interpreter, const Value& input, CallArgs& args) {
  // As in jinja2, nothing empty is looked at, not even None.
  if (!truthy(input)) return interpreter.list({}, ListKind::kGenerator);
  JINJA_TRY(const std::vector<Value> values, interpreter.iterate(input));
  const bool by_attribute =
      std::any_of(args.named.begin(), args.named.end(),
                  [](const auto& named) { return named.first == "attribute"; });
  if (args.positional.empty() && by_attribute) return map_attribute(interpreter, values, args);
  if (args.positional.empty()) return raise("map requires a filter argument");
  JINJA_TRY(const std::string name, take_name(interpreter, args));
  std::vector<Value> mapped;
  for (const Value& value : values) {
    CallArgs copy = args;
    JINJA_TRY(Value result, interpreter.apply_filter(name, value, copy));
    mapped.push_back(std::move(result));
  }
  return interpreter.list(std::move(mapped), ListKind::kGenerator);
}

Eval<Value> select_or_reject(Interpreter& interpreter, const Value& input, CallArgs& args,
                             bool by_attribute, bool wanted) {
  if (!truthy(input)) return interpreter.list({}, ListKind::kGenerator);
  JINJA_TRY(std::vector<Value> values, interpreter.iterate(input));
  Value path;
  if (by_attribute) {
    if (args.positional.empty()) return raise("Missing parameter for attribute name");
    path = args.positional.front();
    args.positional.erase(args.positional.begin());
  }
  std::string test;
  if (!args.positional.empty()) {
    JINJA_TRY(test, take_name(interpreter, args));
  }
  std::vector<Value> kept;
  for (Value& value : values) {
    JINJA_TRY(const Value subject,
              attribute_path(interpreter, value, by_attribute ? &path : nullptr));
    bool holds = truthy(subject);
    if (!test.empty()) {
      CallArgs copy = args;
      JINJA_TRY(holds, interpreter.apply_test(test, subject, copy));
    }
    JINJA_CHECK(interpreter.spend(1));
    if (holds == wanted) kept.push_back(std::move(value));
  }
  return interpreter.list(std::move(kept), ListKind::kGenerator);
}

template <bool kByAttribute, bool kWanted>
Eval<Value> select(Interpreter& interpreter, const Value& input, CallArgs& args) {
  return select_or_reject(interpreter, input, args, kByAttribute, kWanted);
}

}  // namespace

FilterFunction find_select_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kFilters = {
      {"map", map},
      {"select", select<false, true>},
      {"reject", select<false, false>},
      {"selectattr", select<true, true>},
      {"rejectattr", select<true, false>},
  };
  const auto it = kFilters.find(name);
  return it != kFilters.end() ? it->second : nullptr;
}

}  // namespace baton::jinja
