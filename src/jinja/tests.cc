// The tests of Jinja (`x is …`).
#include <cmath>
#include <unordered_map>

#include "jinja/arguments.h"
#include "jinja/interpreter.h"
#include "jinja/registry.h"
#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

Eval<void> no_arguments(std::string_view test, const CallArgs& args) {
  auto bound = bind(test, args, {});
  if (!bound) return tl::unexpected(std::move(bound).error());
  return {};
}

/// A test that looks at the value alone.
template <bool (*kHolds)(const Value&)>
Eval<bool> simple(Interpreter&, const Value& value, CallArgs& args) {
  JINJA_CHECK(no_arguments("test", args));
  return kHolds(value);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_boolean(const Value& v) { return v.as_bool() != nullptr; }
bool is_true(const Value& v) { return v.as_bool() != nullptr && *v.as_bool(); }
bool is_false(const Value& v) { return v.as_bool() != nullptr && !*v.as_bool(); }
bool is_integer(const Value& v) { return v.as_int() != nullptr; }
bool is_float(const Value& v) { return v.as_float() != nullptr; }
bool is_number(const Value& v) { return v.is_number(); }
bool is_mapping(const Value& v) { return v.as_dict() != nullptr; }
bool is_callable(const Value& v) { return v.as_object() != nullptr && v.as_object()->callable(); }
bool is_escaped(const Value& v) { return v.is_string() && v.as_string()->markup; }
// An undefined value has all the special methods, so it passes for a sequence.
bool is_sequence(const Value& v) {
  return v.is_string() || v.is_undefined() || v.as_dict() != nullptr ||
         (v.as_list() != nullptr && v.as_list()->kind <= ListKind::kRange);
}
bool is_iterable(const Value& v) {
  return v.is_string() || v.is_undefined() || v.as_dict() != nullptr || v.as_list() != nullptr;
}

Eval<bool> case_test(Interpreter& interpreter, const Value& value, CallArgs& args, bool upper) {
  JINJA_CHECK(no_arguments(upper ? "upper" : "lower", args));
  JINJA_TRY(const std::string text, interpreter.text(value));
  bool has_cased = false;
  for (size_t byte = 0; byte < text.size();) {
    const char32_t point = next_point(text, byte);
    if (upper ? is_lower(point) : is_upper(point)) return false;
    has_cased = has_cased || (upper ? is_upper(point) : is_lower(point));
  }
  return has_cased;
}

Eval<bool> is_upper_text(Interpreter& interpreter, const Value& value, CallArgs& args) {
  return case_test(interpreter, value, args, true);
}
Eval<bool> is_lower_text(Interpreter& interpreter, const Value& value, CallArgs& args) {
  return case_test(interpreter, value, args, false);
}

/// x is odd, even, divisibleby(n): the remainder decides.
Eval<int64_t> remainder(Interpreter& interpreter, const Value& value, const Value& by) {
  JINJA_TRY(const Value rest, interpreter.binary(Op::kModulo, value, by));
  if (rest.is_integral()) return rest.integer();
  return rest.number() == 0 ? 0 : rest.number() == 1 ? 1 : 2;
}

Eval<bool> is_odd(Interpreter& interpreter, const Value& value, CallArgs& args) {
  JINJA_CHECK(no_arguments("odd", args));
  JINJA_TRY(const int64_t rest, remainder(interpreter, value, Value(int64_t{2})));
  return rest == 1;
}

Eval<bool> is_even(Interpreter& interpreter, const Value& value, CallArgs& args) {
  JINJA_CHECK(no_arguments("even", args));
  JINJA_TRY(const int64_t rest, remainder(interpreter, value, Value(int64_t{2})));
  return rest == 0;
}

Eval<bool> is_divisible(Interpreter& interpreter, const Value& value, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("divisibleby", args, {"num"}, 1));
  JINJA_TRY(const int64_t rest, remainder(interpreter, value, *bound[0]));
  return rest == 0;
}

template <Op kOp>
Eval<bool> compares(Interpreter& interpreter, const Value& value, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("test", args, {"other"}, 1));
  return interpreter.compare(kOp, value, *bound[0]);
}

/// Python's `is`: the same object; equal scalars of one type pass for it.
Eval<bool> is_same(Interpreter& interpreter, const Value& value, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("sameas", args, {"other"}, 1));
  const Value& other = *bound[0];
  if (value.data().index() != other.data().index()) return false;
  if (value.as_list() != nullptr) return value.as_list() == other.as_list();
  if (value.as_dict() != nullptr) return value.as_dict() == other.as_dict();
  return equals(value, other, &interpreter.meter());
}

Eval<bool> is_filter(Interpreter& interpreter, const Value& value, CallArgs& args) {
  JINJA_CHECK(no_arguments("filter", args));
  JINJA_TRY(const std::string name, interpreter.text(value));
  return find_filter(name) != nullptr;
}

Eval<bool> is_test(Interpreter& interpreter, const Value& value, CallArgs& args) {
  JINJA_CHECK(no_arguments("test", args));
  JINJA_TRY(const std::string name, interpreter.text(value));
  return find_test(name) != nullptr;
}

}  // namespace

TestFunction find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, TestFunction> kTests = {
      {"defined", simple<is_defined>},
      {"undefined", simple<is_undefined>},
      {"none", simple<is_none>},
      {"string", simple<is_string>},
      {"boolean", simple<is_boolean>},
      {"true", simple<is_true>},
      {"false", simple<is_false>},
      {"integer", simple<is_integer>},
      {"float", simple<is_float>},
      {"number", simple<is_number>},
      {"mapping", simple<is_mapping>},
      {"sequence", simple<is_sequence>},
      {"iterable", simple<is_iterable>},
      {"callable", simple<is_callable>},
      {"escaped", simple<is_escaped>},
      {"upper", is_upper_text},
      {"lower", is_lower_text},
      {"odd", is_odd},
      {"even", is_even},
      {"divisibleby", is_divisible},
      {"sameas", is_same},
      {"filter", is_filter},
      {"test", is_test},
      {"eq", compares<Op::kEqual>},
      {"equalto", compares<Op::kEqual>},
      {"==", compares<Op::kEqual>},
      {"ne", compares<Op::kNotEqual>},
      {"!=", compares<Op::kNotEqual>},
      {"lt", compares<Op::kLess>},
      {"lessthan", compares<Op::kLess>},
      {"<", compares<Op::kLess>},
      {"le", compares<Op::kLessEqual>},
      {"<=", compares<Op::kLessEqual>},
      {"gt", compares<Op::kGreater>},
      {"greaterthan", compares<Op::kGreater>},
      {">", compares<Op::kGreater>},
      {"ge", compares<Op::kGreaterEqual>},
      {">=", compares<Op::kGreaterEqual>},
      {"in", compares<Op::kIn>},
  };
  const auto it = kTests.find(name);
  return it != kTests.end() ? it->second : nullptr;
}

}  // namespace baton::jinja
