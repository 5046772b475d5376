// Expressions, one function for each level of precedence.
#include <algorithm>

#include "jinja/parser.h"

namespace baton::jinja {

ExprPtr Parser::make_expr(ExprKind kind) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = peek().line;
  return expr;
}

Eval<ExprPtr> Parser::finish(ExprPtr expr) const {
  int deepest = 0;
  const auto visit = [&](const ExprPtr& child) {
    if (child != nullptr) deepest = std::max(deepest, child->depth);
  };
  for (const ExprPtr& child : expr->children) visit(child);
  for (const ExprPtr& child : expr->args) visit(child);
  for (const auto& named : expr->named_args) visit(named.second);
  visit(expr->star_args);
  visit(expr->star_star_args);
  expr->depth = deepest + 1;
  if (expr->depth > limits_.max_nesting) return error("expression nested too deeply");
  return expr;
}

Eval<ExprPtr> Parser::make_binary(ExprKind kind, Op op, ExprPtr left, ExprPtr right) const {
  ExprPtr expr = make_expr(kind);
  expr->line = left->line;
  expr->op = op;
  expr->children.push_back(std::move(left));
  expr->children.push_back(std::move(right));
  return finish(std::move(expr));
}

Eval<ExprPtr> Parser::parse_tuple(bool with_conditional, bool in_parentheses) {
  ExprPtr tuple = make_expr(ExprKind::kTuple);
  bool is_tuple = false;
  while (true) {
    const TokenKind kind = peek().kind;
    if (kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd || is_op(")") ||
        (!with_conditional && is_name("recursive"))) {
      break;
    }
    JINJA_TRY(ExprPtr item, with_conditional ? parse_conditional() : parse_or());
    tuple->children.push_back(std::move(item));
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!tuple->children.empty()) return std::move(tuple->children.front());
    if (!in_parentheses) return unexpected("an expression");
  }
  return finish(std::move(tuple));
}

Eval<ExprPtr> Parser::parse_conditional() {
  const Nesting nesting(nesting_);
  if (too_deep()) return error("expression nested too deeply");
  const std::optional<Failure> unknown_before = unknown_;
  JINJA_TRY(ExprPtr expr, parse_or());
  while (skip_name("if")) {
    ExprPtr conditional = make_expr(ExprKind::kConditional);
    conditional->line = expr->line;
    JINJA_TRY(ExprPtr condition, parse_or());
    ExprPtr otherwise;
    if (skip_name("else")) {
      JINJA_TRY(otherwise, parse_conditional());
    }
    conditional->children.push_back(std::move(condition));
    conditional->children.push_back(std::move(expr));
    conditional->children.push_back(std::move(otherwise));
    JINJA_TRY(expr, finish(std::move(conditional)));
    // A conditional expression may use unknown filters as long as they aren't reached.
    unknown_ = unknown_before;
  }
  return expr;
}

Eval<ExprPtr> Parser::parse_or() {
  JINJA_TRY(ExprPtr left, parse_and());
  while (skip_name("or")) {
    JINJA_TRY(ExprPtr right, parse_and());
    JINJA_TRY(left, make_binary(ExprKind::kOr, Op::kAdd, std::move(left), std::move(right)));
  }
  return left;
}

Eval<ExprPtr> Parser::parse_and() {
  JINJA_TRY(ExprPtr left, parse_not());
  while (skip_name("and")) {
    JINJA_TRY(ExprPtr right, parse_not());
    JINJA_TRY(left, make_binary(ExprKind::kAnd, Op::kAdd, std::move(left), std::move(right)));
  }
  return left;
}

Eval<ExprPtr> Parser::parse_not() {
  const Nesting nesting(nesting_);
  if (too_deep()) return error("expression nested too deeply");
  if (!is_name("not")) return parse_compare();
  ExprPtr expr = make_expr(ExprKind::kNot);
  take();
  JINJA_TRY(ExprPtr operand, parse_not());
  expr->children.push_back(std::move(operand));
  return finish(std::move(expr));
}

Eval<ExprPtr> Parser::parse_compare() {
  static constexpr std::pair<std::string_view, Op> kOps[] = {
      {"==", Op::kEqual},     {"!=", Op::kNotEqual}, {"<", Op::kLess},
      {"<=", Op::kLessEqual}, {">", Op::kGreater},   {">=", Op::kGreaterEqual}};
  ExprPtr compare = make_expr(ExprKind::kCompare);
  JINJA_TRY(ExprPtr first, parse_sum());
  compare->children.push_back(std::move(first));
  while (true) {
    const auto* op = std::find_if(std::begin(kOps), std::end(kOps),
                                  [this](const auto& entry) { return is_op(entry.first); });
    if (op != std::end(kOps)) {
      take();
      compare->compare_ops.push_back(op->second);
    } else if (skip_name("in")) {
      compare->compare_ops.push_back(Op::kIn);
    } else if (is_name("not") && peek_next().kind == TokenKind::kName && peek_next().text == "in") {
      take();
      take();
      compare->compare_ops.push_back(Op::kNotIn);
    } else {
      break;
    }
    JINJA_TRY(ExprPtr operand, parse_sum());
    compare->children.push_back(std::move(operand));
  }
  if (compare->compare_ops.empty()) return std::move(compare->children.front());
  return finish(std::move(compare));
}

Eval<ExprPtr> Parser::parse_sum() {
  JINJA_TRY(ExprPtr left, parse_concat());
  while (is_op("+") || is_op("-")) {
    const Op op = take().text == "+" ? Op::kAdd : Op::kSubtract;
    JINJA_TRY(ExprPtr right, parse_concat());
    JINJA_TRY(left, make_binary(ExprKind::kBinary, op, std::move(left), std::move(right)));
  }
  return left;
}

Eval<ExprPtr> Parser::parse_concat() {
  ExprPtr concat = make_expr(ExprKind::kConcat);
  do {
    JINJA_TRY(ExprPtr part, parse_product());
    concat->children.push_back(std::move(part));
  } while (skip_op("~"));
  if (concat->children.size() == 1) return std::move(concat->children.front());
  return finish(std::move(concat));
}

Eval<ExprPtr> Parser::parse_product() {
  static constexpr std::pair<std::string_view, Op> kOps[] = {
      {"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}};
  JINJA_TRY(ExprPtr left, parse_power());
  while (true) {
    const auto* op = std::find_if(std::begin(kOps), std::end(kOps),
                                  [this](const auto& entry) { return is_op(entry.first); });
    if (op == std::end(kOps)) return left;
    take();
    JINJA_TRY(ExprPtr right, parse_power());
    JINJA_TRY(left, make_binary(ExprKind::kBinary, op->second, std::move(left), std::move(right)));
  }
}

Eval<ExprPtr> Parser::parse_power() {
  JINJA_TRY(ExprPtr left, parse_unary(true));
  while (skip_op("**")) {
    JINJA_TRY(ExprPtr right, parse_unary(true));
    JINJA_TRY(left, make_binary(ExprKind::kBinary, Op::kPower, std::move(left), std::move(right)));
  }
  return left;
}

Eval<ExprPtr> Parser::parse_unary(bool with_filter) {
  const Nesting nesting(nesting_);
  if (too_deep()) return error("expression nested too deeply");
  ExprPtr expr;
  if (is_op("-") || is_op("+")) {
    ExprPtr unary = make_expr(is_op("-") ? ExprKind::kNegate : ExprKind::kPlus);
    take();
    JINJA_TRY(ExprPtr operand, parse_unary(false));
    unary->children.push_back(std::move(operand));
    JINJA_TRY(expr, finish(std::move(unary)));
  } else {
    JINJA_TRY(expr, parse_primary());
  }
  JINJA_TRY(expr, parse_postfix(std::move(expr)));
  return with_filter ? parse_filters(std::move(expr)) : Eval<ExprPtr>(std::move(expr));
}

Eval<ExprPtr> Parser::parse_primary() {
  const Token& token = peek();
  ExprPtr expr = make_expr(ExprKind::kConst);
  switch (token.kind) {
    case TokenKind::kName:
      return parse_name();
    case TokenKind::kString: {
      std::string text;
      while (peek().kind == TokenKind::kString) text += take().text;
      expr->constant = make_string(nullptr, std::move(text));
      return expr;
    }
    case TokenKind::kInteger:
      expr->constant = Value(take().integer);
      return expr;
    case TokenKind::kFloat:
      expr->constant = Value(take().real);
      return expr;
    default:
      break;
  }
  if (skip_op("(")) {
    JINJA_TRY(expr, parse_tuple(true, true));
    JINJA_CHECK(expect_op(")"));
    return expr;
  }
  if (is_op("[")) return parse_list();
  if (is_op("{")) return parse_dict();
  return unexpected("an expression");
}

Eval<ExprPtr> Parser::parse_name() {
  ExprPtr expr = make_expr(ExprKind::kConst);
  const std::string& name = take().text;
  if (name == "true" || name == "True") {
    expr->constant = Value(true);
  } else if (name == "false" || name == "False") {
    expr->constant = Value(false);
  } else if (name != "none" && name != "None") {
    expr->kind = ExprKind::kName;
    expr->name = intern(name);
    if (macro_ != nullptr && expr->name == kVarargsName) macro_->takes_varargs = true;
    if (macro_ != nullptr && expr->name == kKwargsName) macro_->takes_kwargs = true;
  }
  return expr;
}

Eval<ExprPtr> Parser::parse_list() {
  ExprPtr list = make_expr(ExprKind::kList);
  take();
  while (!is_op("]")) {
    if (!list->children.empty()) JINJA_CHECK(expect_op(","));
    if (is_op("]")) break;
    JINJA_TRY(ExprPtr item, parse_expression());
    list->children.push_back(std::move(item));
  }
  take();
  return finish(std::move(list));
}

Eval<ExprPtr> Parser::parse_dict() {
  ExprPtr dict = make_expr(ExprKind::kDict);
  take();
  while (!is_op("}")) {
    if (!dict->children.empty()) JINJA_CHECK(expect_op(","));
    if (is_op("}")) break;
    JINJA_TRY(ExprPtr key, parse_expression());
    JINJA_CHECK(expect_op(":"));
    JINJA_TRY(ExprPtr value, parse_expression());
    dict->children.push_back(std::move(key));
    dict->children.push_back(std::move(value));
  }
  take();
  return finish(std::move(dict));
}

Eval<ExprPtr> Parser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (is_op(".")) {
      JINJA_TRY(expr, parse_attribute(std::move(expr)));
    } else if (is_op("[")) {
      JINJA_TRY(expr, parse_subscript(std::move(expr)));
    } else if (is_op("(")) {
      JINJA_TRY(expr, parse_call(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Eval<ExprPtr> Parser::parse_filters(ExprPtr expr) {
  while (true) {
    if (skip_op("|")) {
      JINJA_TRY(expr, parse_filter(std::move(expr)));
    } else if (is_name("is")) {
      JINJA_TRY(expr, parse_test(std::move(expr)));
    } else if (is_op("(")) {
      JINJA_TRY(expr, parse_call(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Eval<std::string> Parser::parse_dotted_name() {
  JINJA_TRY(std::string name, expect_name("a name"));
  while (skip_op(".")) {
    JINJA_TRY(const std::string part, expect_name("a name"));
    name += "." + part;
  }
  return name;
}

Eval<ExprPtr> Parser::parse_filter(ExprPtr input) {
  ExprPtr filter = make_expr(ExprKind::kFilter);
  JINJA_TRY(filter->text, parse_dotted_name());
  filter->filter = find_filter(filter->text);
  if (filter->filter == nullptr && n_conditions_ == 0 && !unknown_) {
    unknown_ = error(fmt::format("no filter named '{}'", filter->text)).value();
  }
  filter->children.push_back(std::move(input));
  if (is_op("(")) JINJA_CHECK(parse_arguments(*filter));
  return finish(std::move(filter));
}

Eval<ExprPtr> Parser::parse_test(ExprPtr input) {
  ExprPtr test = make_expr(ExprKind::kTest);
  take();
  const bool negated = skip_name("not");
  JINJA_TRY(test->text, parse_dotted_name());
  test->test = find_test(test->text);
  if (test->test == nullptr && n_conditions_ == 0 && !unknown_) {
    unknown_ = error(fmt::format("no test named '{}'", test->text)).value();
  }
  test->children.push_back(std::move(input));
  const TokenKind kind = peek().kind;
  if (is_op("(")) {
    JINJA_CHECK(parse_arguments(*test));
  } else if ((kind == TokenKind::kName && !is_name("else") && !is_name("or") && !is_name("and")) ||
             kind == TokenKind::kString || kind == TokenKind::kInteger ||
             kind == TokenKind::kFloat || is_op("[") || is_op("{")) {
    if (is_name("is")) return error("tests can't be chained with 'is'");
    JINJA_TRY(ExprPtr arg, parse_primary());
    JINJA_TRY(arg, parse_postfix(std::move(arg)));
    test->args.push_back(std::move(arg));
  }
  JINJA_TRY(ExprPtr finished, finish(std::move(test)));
  if (!negated) return finished;
  ExprPtr inverse = make_expr(ExprKind::kNot);
  inverse->children.push_back(std::move(finished));
  return finish(std::move(inverse));
}

Eval<ExprPtr> Parser::parse_attribute(ExprPtr object) {
  ExprPtr expr = make_expr(ExprKind::kAttribute);
  take();
  if (peek().kind == TokenKind::kInteger) {
    ExprPtr index = make_expr(ExprKind::kConst);
    index->constant = Value(take().integer);
    return make_binary(ExprKind::kItem, Op::kAdd, std::move(object), std::move(index));
  }
  JINJA_TRY(expr->text, expect_name("a name or number"));
  expr->children.push_back(std::move(object));
  return finish(std::move(expr));
}

Eval<ExprPtr> Parser::parse_subscript(ExprPtr object) {
  ExprPtr tuple = make_expr(ExprKind::kTuple);
  take();
  bool is_slice = false;
  while (!is_op("]")) {
    if (!tuple->children.empty()) JINJA_CHECK(expect_op(","));
    JINJA_TRY(ExprPtr part, parse_subscript_part(object, is_slice));
    tuple->children.push_back(std::move(part));
    if (is_slice && !is_op("]")) return unexpected("']' after a slice");
  }
  take();
  if (is_slice) {
    if (tuple->children.size() > 1) return error("a slice can't be part of a tuple");
    return finish(std::move(tuple->children.front()));
  }
  ExprPtr index;
  if (tuple->children.size() == 1) {
    index = std::move(tuple->children.front());
  } else {
    JINJA_TRY(index, finish(std::move(tuple)));
  }
  return make_binary(ExprKind::kItem, Op::kAdd, std::move(object), std::move(index));
}

/// An index, or a whole kSlice node that has taken `object`.
Eval<ExprPtr> Parser::parse_subscript_part(ExprPtr& object, bool& is_slice) {
  ExprPtr start;
  if (!is_op(":")) {
    JINJA_TRY(start, parse_expression());
    if (!is_op(":")) return start;
  }
  if (object == nullptr) return error("a slice can't be part of a tuple");
  is_slice = true;
  ExprPtr slice = make_expr(ExprKind::kSlice);
  slice->children.push_back(std::move(object));
  slice->children.push_back(std::move(start));
  for (int bound = 0; bound < 2; ++bound) {
    ExprPtr value;
    if (skip_op(":") && !is_op(":") && !is_op("]") && !is_op(",")) {
      JINJA_TRY(value, parse_expression());
    }
    slice->children.push_back(std::move(value));
  }
  return slice;
}

Eval<ExprPtr> Parser::parse_call(ExprPtr callee) {
  ExprPtr call = make_expr(ExprKind::kCall);
  call->children.push_back(std::move(callee));
  JINJA_CHECK(parse_arguments(*call));
  return finish(std::move(call));
}

Eval<void> Parser::parse_arguments(Expr& expr) {
  take();
  bool first = true;
  while (!is_op(")")) {
    if (!first) JINJA_CHECK(expect_op(","));
    first = false;
    if (is_op(")")) break;
    JINJA_CHECK(parse_argument(expr));
  }
  take();
  return {};
}

Eval<void> Parser::parse_argument(Expr& expr) {
  if (skip_op("**")) {
    if (expr.star_star_args != nullptr) return error("more than one '**' argument");
    JINJA_TRY(expr.star_star_args, parse_expression());
    return {};
  }
  if (expr.star_star_args != nullptr) return error("argument after the '**' argument");
  if (skip_op("*")) {
    if (expr.star_args != nullptr) return error("more than one '*' argument");
    JINJA_TRY(expr.star_args, parse_expression());
    return {};
  }
  if (peek().kind == TokenKind::kName && peek_next().kind == TokenKind::kOperator &&
      peek_next().text == "=") {
    std::string name = take().text;
    take();
    JINJA_TRY(ExprPtr value, parse_expression());
    expr.named_args.emplace_back(std::move(name), std::move(value));
    return {};
  }
  if (!expr.named_args.empty() || expr.star_args != nullptr) {
    return error("positional argument after a keyword argument");
  }
  JINJA_TRY(ExprPtr value, parse_expression());
  expr.args.push_back(std::move(value));
  return {};
}

}  // namespace baton::jinja
