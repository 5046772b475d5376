// The operators of Python on values: arithmetic with overflow checks, sequences, comparison.
#include <cmath>

#include "jinja/html.h"
#include "jinja/interpreter.h"
#include "jinja/objects.h"
#include "jinja/print.h"

namespace baton::jinja {
namespace {

std::string_view symbol(Op op) {
  static constexpr std::string_view kSymbols[] = {"+",  "-",           "*",  "/",  "//",
                                                  "%",  "** or pow()", "==", "!=", "<",
                                                  "<=", ">",           ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

tl::unexpected<Failure> unsupported(Op op, const Value& left, const Value& right) {
  return raise("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op), type_name(left),
               type_name(right));
}

tl::unexpected<Failure> overflow(Op op) {
  return raise("integer overflow: the result of '{}' does not fit 64 bits",
               op == Op::kPower ? "**" : symbol(op));
}

Eval<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return raise("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value(exponent == 0 ? int64_t{1} : base);
  if (base == -1) return Value(exponent % 2 == 0 ? int64_t{1} : int64_t{-1});
  if (exponent > 63) return overflow(Op::kPower);
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return overflow(Op::kPower);
  }
  return Value(result);
}

/// Quotient rounded down, and the remainder with the sign of the divisor.
Eval<Value> integer_division(Op op, int64_t left, int64_t right) {
  if (right == 0) return raise("integer division or modulo by zero");
  if (right == -1) {
    if (op == Op::kModulo) return Value(int64_t{0});
    int64_t result = 0;
    if (__builtin_sub_overflow(int64_t{0}, left, &result)) return overflow(op);
    return Value(result);
  }
  int64_t quotient = left / right;
  int64_t remainder = left % right;
  if (remainder != 0 && (remainder < 0) != (right < 0)) {
    remainder += right;
    --quotient;
  }
  return Value(op == Op::kModulo ? remainder : quotient);
}

Eval<Value> integer_binary(Op op, int64_t left, int64_t right) {
  int64_t result = 0;
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(left, right, &result)) return overflow(op);
      return Value(result);
    case Op::kSubtract:
      if (__builtin_sub_overflow(left, right, &result)) return overflow(op);
      return Value(result);
    case Op::kMultiply:
      if (__builtin_mul_overflow(left, right, &result)) return overflow(op);
      return Value(result);
    case Op::kDivide:
      if (right == 0) return raise("division by zero");
      return Value(static_cast<double>(left) / static_cast<double>(right));
    case Op::kPower:
      return integer_power(left, right);
    default:
      return integer_division(op, left, right);
  }
}

Eval<Value> float_binary(Op op, double left, double right) {
  switch (op) {
    case Op::kAdd:
      return Value(left + right);
    case Op::kSubtract:
      return Value(left - right);
    case Op::kMultiply:
      return Value(left * right);
    case Op::kPower: {
      const double result = std::pow(left, right);
      if (left == 0 && right < 0) return raise("0.0 cannot be raised to a negative power");
      if (std::isnan(result) && !std::isnan(left) && !std::isnan(right))
        return raise("complex numbers are not supported");
      if (std::isinf(result) && std::isfinite(left) && std::isfinite(right))
        return raise("float power result too large");
      return Value(result);
    }
    default:
      break;
  }
  if (right == 0)
    return raise("{}",
                 op == Op::kDivide ? "float division by zero" : "float floor division by zero");
  if (op == Op::kDivide) return Value(left / right);
  double remainder = std::fmod(left, right);
  if (remainder != 0 && (remainder < 0) != (right < 0)) remainder += right;
  if (op == Op::kModulo) return Value(remainder == 0 ? std::copysign(0.0, right) : remainder);
  return Value(std::floor((left - remainder) / right + 0.5));
}

/// str + str, where one that is marked safe escapes the other.
Eval<Value> add_strings(Interpreter& interpreter, const String& left, const String& right) {
  if (left.markup == right.markup) {
    JINJA_CHECK(interpreter.check_size(left.text.size() + right.text.size(), 1));
    return make_string(&interpreter.meter(), left.text + right.text, left.markup);
  }
  const std::string a = left.markup ? left.text : escape_html(left.text);
  const std::string b = right.markup ? right.text : escape_html(right.text);
  JINJA_CHECK(interpreter.check_size(a.size() + b.size(), 1));
  return make_string(&interpreter.meter(), a + b, true);
}

Eval<Value> add(Interpreter& interpreter, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string())
    return add_strings(interpreter, *left.as_string(), *right.as_string());
  const List* a = left.as_list();
  const List* b = right.as_list();
  if (a != nullptr && b != nullptr && a->kind == b->kind && a->kind <= ListKind::kTuple) {
    JINJA_CHECK(interpreter.check_size(a->items.size() + b->items.size(), sizeof(Value)));
    std::vector<Value> items;
    items.reserve(a->items.size() + b->items.size());
    items.insert(items.end(), a->items.begin(), a->items.end());
    items.insert(items.end(), b->items.begin(), b->items.end());
    return interpreter.list(std::move(items), a->kind);
  }
  if (left.is_string())
    return raise("can only concatenate str (not \"{}\") to str", type_name(right));
  if (left.is_list(ListKind::kList) || left.is_list(ListKind::kTuple)) {
    return raise("can only concatenate {} (not \"{}\") to {}", type_name(left), type_name(right),
                 type_name(left));
  }
  return unsupported(Op::kAdd, left, right);
}

Eval<Value> repeat(Interpreter& interpreter, const Value& sequence, int64_t n) {
  const auto times = static_cast<size_t>(std::max<int64_t>(n, 0));
  if (sequence.is_string()) {
    const std::string& text = sequence.text();
    if (text.empty()) return sequence;
    JINJA_CHECK(interpreter.check_size(times, text.size()));
    std::string out;
    out.reserve(times * text.size());
    for (size_t i = 0; i < times; ++i) out += text;
    return make_string(&interpreter.meter(), std::move(out), sequence.as_string()->markup);
  }
  const List& list = *sequence.as_list();
  if (list.items.empty()) return sequence;
  JINJA_CHECK(interpreter.check_size(times, list.items.size() * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(times * list.items.size());
  for (size_t i = 0; i < times; ++i)
    items.insert(items.end(), list.items.begin(), list.items.end());
  return interpreter.list(std::move(items), list.kind);
}

bool is_repeatable(const Value& value) {
  return value.is_string() || value.is_list(ListKind::kList) || value.is_list(ListKind::kTuple);
}

Eval<bool> contains(Interpreter& interpreter, const Value& container, const Value& wanted) {
  if (container.is_undefined()) return false;
  interpreter.meter().spend_bytes(size_in_bytes(container));
  if (container.is_string()) {
    if (wanted.is_undefined()) return raise("{}", wanted.as_undefined()->hint);
    if (!wanted.is_string())
      return raise("'in <string>' requires string as left operand, not {}", type_name(wanted));
    return container.text().find(wanted.text()) != std::string::npos;
  }
  if (const Dict* dict = container.as_dict()) {
    if (!is_hashable(wanted)) return raise("unhashable type: '{}'", type_name(wanted));
    return dict->find(wanted) != nullptr;
  }
  if (List* list = container.as_list()) {
    for (const Value& item : list->take()) {
      if (equals(item, wanted, &interpreter.meter())) return true;
    }
    return false;
  }
  return raise("argument of type '{}' is not iterable", type_name(container));
}

}  // namespace

Eval<Value> Interpreter::binary(Op op, const Value& left, const Value& right) {
  if (op == Op::kModulo && left.is_string()) return format_percent(*this, left.text(), right);
  for (const Value* side : {&left, &right}) {
    if (side->is_undefined()) return raise("{}", side->as_undefined()->hint);
  }
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral())
      return integer_binary(op, left.integer(), right.integer());
    return float_binary(op, left.number(), right.number());
  }
  if (op == Op::kAdd) return add(*this, left, right);
  if (op == Op::kMultiply) {
    if (is_repeatable(left) && right.is_integral()) return repeat(*this, left, right.integer());
    if (is_repeatable(right) && left.is_integral()) return repeat(*this, right, left.integer());
    if (is_repeatable(left))
      return raise("can't multiply sequence by non-int of type '{}'", type_name(right));
    if (is_repeatable(right))
      return raise("can't multiply sequence by non-int of type '{}'", type_name(left));
  }
  return unsupported(op, left, right);
}

Eval<bool> Interpreter::compare(Op op, const Value& left, const Value& right) {
  meter_.spend_bytes(std::min(size_in_bytes(left), size_in_bytes(right)));
  switch (op) {
    case Op::kEqual:
      return equals(left, right, &meter_);
    case Op::kNotEqual:
      return !equals(left, right, &meter_);
    case Op::kLess:
      return less_than(left, right, &meter_, "<");
    case Op::kGreater:
      return less_than(right, left, &meter_, ">");
    case Op::kIn:
      return contains(*this, right, left);
    case Op::kNotIn: {
      JINJA_TRY(const bool inside, contains(*this, right, left));
      return !inside;
    }
    default:
      break;
  }
  const bool is_less = op == Op::kLessEqual;
  JINJA_TRY(const bool less,
            less_than(is_less ? left : right, is_less ? right : left, &meter_, symbol(op)));
  return less || equals(left, right, &meter_);
}

Eval<Value> Interpreter::negate(const Value& value) {
  if (value.is_undefined()) return raise("{}", value.as_undefined()->hint);
  if (const double* number = value.as_float()) return Value(-*number);
  if (!value.is_integral()) return raise("bad operand type for unary -: '{}'", type_name(value));
  int64_t result = 0;
  if (__builtin_sub_overflow(int64_t{0}, value.integer(), &result)) return overflow(Op::kSubtract);
  return Value(result);
}

}  // namespace baton::jinja
