// Evaluation of expressions.
#include "jinja/interpreter.h"
#include "jinja/objects.h"
#include "jinja/print.h"

namespace baton::jinja {

Eval<void> Interpreter::spend(int64_t steps) {
  meter_.spend(steps);
  if (meter_.overrun()) return overrun();
  return {};
}

Eval<void> Interpreter::check_size(size_t n, size_t bytes_each) {
  const size_t limit = meter_.limits().max_value_bytes;
  if ((bytes_each > 0 && n > limit / bytes_each) || !meter_.fits(n * bytes_each)) {
    meter_.mark_too_big();
    return overrun();
  }
  return {};
}

tl::unexpected<Failure> Interpreter::overrun() const {
  const Limits& limits = meter_.limits();
  if (meter_.out_of_steps()) return raise("template needs more than {} steps", limits.max_steps);
  if (meter_.too_big())
    return raise("template needs more than {} bytes of values", limits.max_value_bytes);
  return raise("values nested more than {} deep", limits.max_nesting);
}

Eval<std::string> Interpreter::to_text_checked(const Value& value) {
  auto text = to_text(value, meter_);
  if (meter_.overrun()) return overrun();
  return text;
}

// The frame that is repeated for each level of an expression: kept small.
Eval<Value> Interpreter::eval(const Expr& expr) {
  meter_.spend(1);
  if (meter_.overrun() || ++depth_ > meter_.limits().max_recursion) {
    auto failure = meter_.overrun() ? overrun() : raise("maximum recursion depth exceeded");
    failure.value().line = expr.line;
    return failure;
  }
  auto result = eval_any(expr);
  --depth_;
  if (!result && result.error().line == 0) result.error().line = expr.line;
  return result;
}

Eval<Value> Interpreter::eval_any(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.constant;
    case ExprKind::kName:
      return eval_name(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return eval_list(expr);
    case ExprKind::kDict:
      return eval_dict(expr);
    case ExprKind::kAttribute: {
      JINJA_TRY(const Value object, eval(*expr.children[0]));
      return attribute(object, expr.text);
    }
    case ExprKind::kSlice:
      return eval_slice(expr);
    case ExprKind::kCall:
      return eval_call(expr);
    case ExprKind::kFilter:
      return eval_filter(expr, nullptr);
    case ExprKind::kTest:
      return eval_test(expr);
    case ExprKind::kNot: {
      JINJA_TRY(const Value value, eval(*expr.children[0]));
      return Value(!truthy(value));
    }
    case ExprKind::kCompare:
      return eval_compare(expr);
    case ExprKind::kConcat:
      return eval_concat(expr);
    case ExprKind::kConditional:
      return eval_conditional(expr);
    default:
      return eval_binary(expr);
  }
}

const Value* Interpreter::find(NameId name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [id, value] : scope->variables) {
      if (id == name) return &value;
    }
    meter_.spend(static_cast<int64_t>(scope->variables.size() / 16));
  }
  const auto& global = globals_[static_cast<size_t>(name)];
  return global ? &*global : nullptr;
}

Eval<Value> Interpreter::eval_name(const Expr& expr) {
  if (const Value* value = find(expr.name)) return *value;
  return undefined(fmt::format("'{}' is undefined", name_of(expr.name)));
}

Eval<Value> Interpreter::eval_list(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) {
    JINJA_TRY(Value item, eval(*child));
    items.push_back(std::move(item));
  }
  return list(std::move(items), expr.kind == ExprKind::kList ? ListKind::kList : ListKind::kTuple);
}

Eval<Value> Interpreter::eval_dict(const Expr& expr) {
  auto dict = std::make_shared<Dict>(&meter_);
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    JINJA_TRY(Value key, eval(*expr.children[i]));
    if (!is_hashable(key)) return raise("unhashable type: '{}'", type_name(key));
    JINJA_TRY(Value value, eval(*expr.children[i + 1]));
    dict->set(std::move(key), std::move(value));
  }
  return Value(std::move(dict));
}

Eval<Value> Interpreter::eval_slice(const Expr& expr) {
  JINJA_TRY(const Value object, eval(*expr.children[0]));
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expr.children[i + 1] == nullptr) continue;
    JINJA_TRY(bounds[i], eval(*expr.children[i + 1]));
  }
  return slice(object, bounds[0], bounds[1], bounds[2]);
}

Eval<void> Interpreter::eval_star_args(const Expr& expr, CallArgs& args) {
  if (expr.star_args != nullptr) {
    JINJA_TRY(const Value value, eval(*expr.star_args));
    JINJA_TRY(std::vector<Value> items, iterate(value));
    for (Value& item : items) args.positional.push_back(std::move(item));
  }
  if (expr.star_star_args == nullptr) return {};
  JINJA_TRY(const Value value, eval(*expr.star_star_args));
  const Dict* dict = value.as_dict();
  if (dict == nullptr)
    return raise("argument after ** must be a mapping, not {}", type_name(value));
  for (const auto& [key, item] : dict->entries) {
    if (!key.is_string()) return raise("keywords must be strings");
    args.named.emplace_back(key.text(), item);
  }
  return {};
}

Eval<CallArgs> Interpreter::eval_args(const Expr& expr) {
  CallArgs args;
  args.positional.reserve(expr.args.size());
  for (const ExprPtr& arg : expr.args) {
    JINJA_TRY(Value value, eval(*arg));
    args.positional.push_back(std::move(value));
  }
  for (const auto& [name, arg] : expr.named_args) {
    JINJA_TRY(Value value, eval(*arg));
    args.named.emplace_back(name, std::move(value));
  }
  if (expr.star_args != nullptr || expr.star_star_args != nullptr) {
    JINJA_CHECK(eval_star_args(expr, args));
  }
  return args;
}

Eval<Value> Interpreter::eval_call(const Expr& expr) {
  const Expr& callee = *expr.children[0];
  if (callee.kind == ExprKind::kAttribute) {
    JINJA_TRY(const Value object, eval(*callee.children[0]));
    JINJA_TRY(CallArgs args, eval_args(expr));
    return call_method(object, callee.text, args);
  }
  JINJA_TRY(const Value function, eval(callee));
  JINJA_TRY(CallArgs args, eval_args(expr));
  return call(function, args);
}

/// `input`, if not null, is what innermost filters of a filter block get.
Eval<Value> Interpreter::eval_filter(const Expr& expr, const Value* input) {
  Value value;
  const Expr* const inner = expr.children[0].get();
  if (inner == nullptr) {
    value = *input;
  } else if (input != nullptr && inner->kind == ExprKind::kFilter) {
    JINJA_TRY(value, eval_filter(*inner, input));
  } else {
    JINJA_TRY(value, eval(*inner));
  }
  if (expr.filter == nullptr) return raise("no filter named '{}'", expr.text);
  JINJA_TRY(CallArgs args, eval_args(expr));
  meter_.spend_bytes(size_in_bytes(value));
  JINJA_TRY(Value result, expr.filter(*this, value, args));
  JINJA_CHECK(spend(1));
  return result;
}

Eval<Value> Interpreter::eval_test(const Expr& expr) {
  JINJA_TRY(const Value value, eval(*expr.children[0]));
  if (expr.test == nullptr) return raise("no test named '{}'", expr.text);
  JINJA_TRY(CallArgs args, eval_args(expr));
  JINJA_TRY(const bool result, expr.test(*this, value, args));
  JINJA_CHECK(spend(0));
  return Value(result);
}

Eval<Value> Interpreter::eval_binary(const Expr& expr) {
  JINJA_TRY(Value left, eval(*expr.children[0]));
  switch (expr.kind) {
    case ExprKind::kAnd:
      return truthy(left) ? eval(*expr.children[1]) : left;
    case ExprKind::kOr:
      return truthy(left) ? left : eval(*expr.children[1]);
    case ExprKind::kNegate:
      return negate(left);
    case ExprKind::kPlus:
      if (left.is_undefined()) return raise("{}", left.as_undefined()->hint);
      if (!left.is_number()) return raise("bad operand type for unary +: '{}'", type_name(left));
      return left.as_bool() != nullptr ? Value(left.integer()) : left;
    default:
      break;
  }
  JINJA_TRY(const Value right, eval(*expr.children[1]));
  if (expr.kind == ExprKind::kItem) return item(left, right);
  return binary(expr.op, left, right);
}

Eval<Value> Interpreter::eval_compare(const Expr& expr) {
  JINJA_TRY(Value left, eval(*expr.children[0]));
  for (size_t i = 0; i < expr.compare_ops.size(); ++i) {
    JINJA_TRY(Value right, eval(*expr.children[i + 1]));
    JINJA_TRY(const bool holds, compare(expr.compare_ops[i], left, right));
    JINJA_CHECK(spend(0));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Eval<Value> Interpreter::eval_concat(const Expr& expr) {
  std::string joined;
  for (const ExprPtr& child : expr.children) {
    JINJA_TRY(const Value value, eval(*child));
    JINJA_TRY(const std::string part, text(value));
    JINJA_CHECK(check_size(joined.size() + part.size(), 1));
    joined += part;
  }
  return string(std::move(joined));
}

Eval<Value> Interpreter::eval_conditional(const Expr& expr) {
  JINJA_TRY(const Value condition, eval(*expr.children[0]));
  if (truthy(condition)) return eval(*expr.children[1]);
  if (expr.children[2] != nullptr) return eval(*expr.children[2]);
  return undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined",
      expr.line));
}

Eval<Value> Interpreter::apply_filter(std::string_view name, const Value& input, CallArgs& args) {
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) return raise("no filter named '{}'", name);
  meter_.spend_bytes(size_in_bytes(input));
  JINJA_CHECK(spend(1));
  return filter(*this, input, args);
}

Eval<bool> Interpreter::apply_test(std::string_view name, const Value& input, CallArgs& args) {
  const TestFunction test = find_test(name);
  if (test == nullptr) return raise("no test named '{}'", name);
  JINJA_CHECK(spend(1));
  return test(*this, input, args);
}

}  // namespace baton::jinja
