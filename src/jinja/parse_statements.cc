// Statements: everything between {% and %}, and the blocks they enclose.
#include "jinja/parser.h"

namespace baton::jinja {
namespace {

std::string_view describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "template text";
    case TokenKind::kString:
      return "a string";
    default:
      return token.text;
  }
}

}  // namespace

tl::unexpected<Failure> Parser::error(std::string message) const {
  return tl::unexpected<Failure>(Failure{std::move(message), peek().line, false});
}

tl::unexpected<Failure> Parser::unexpected(std::string_view wanted) const {
  return error(fmt::format("unexpected '{}', expected {}", describe(peek()), wanted));
}

Eval<void> Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) return unexpected(fmt::format("'{}'", op));
  return {};
}

Eval<void> Parser::expect_kind(TokenKind kind, std::string_view what) {
  if (peek().kind != kind) return unexpected(fmt::format("'{}'", what));
  take();
  return {};
}

Eval<std::string> Parser::expect_name(std::string_view what) {
  if (peek().kind != TokenKind::kName) return unexpected(what);
  return take().text;
}

NameId Parser::intern(const std::string& name) {
  const auto [it, is_new] = ast_.name_ids.emplace(name, static_cast<NameId>(ast_.names.size()));
  if (is_new) ast_.names.push_back(name);
  return it->second;
}

std::unique_ptr<Stmt> Parser::make_stmt(StmtKind kind) const {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->line = peek().line;
  return stmt;
}

Eval<void> Parser::run() {
  for (const char* name : {"loop", "caller", "varargs", "kwargs"}) (void)intern(name);
  JINJA_TRY(ast_.body, parse_block());
  if (peek().kind != TokenKind::kEnd) {
    return error(fmt::format("unknown or misplaced tag '{}'", peek().text));
  }
  if (unknown_) return tl::unexpected(*unknown_);
  return {};
}

/// Statements until a tag that doesn't begin one (else, endfor, …), which stays: the current token
/// is then its name.
Eval<Block> Parser::parse_block() {
  const Nesting nesting(nesting_);
  if (too_deep()) return error("blocks nested too deeply");
  Block block;
  while (peek().kind != TokenKind::kEnd) {
    if (peek().kind == TokenKind::kData) {
      auto text = make_stmt(StmtKind::kText);
      text->text = take().text;
      block.push_back(std::move(text));
    } else if (peek().kind == TokenKind::kVariableBegin) {
      take();
      auto output = make_stmt(StmtKind::kOutput);
      JINJA_TRY(ExprPtr expr, parse_tuple(true, false));
      output->exprs.push_back(std::move(expr));
      JINJA_CHECK(expect_kind(TokenKind::kVariableEnd, "}}"));
      block.push_back(std::move(output));
    } else {
      JINJA_CHECK(expect_kind(TokenKind::kBlockBegin, "{%"));
      if (peek().kind != TokenKind::kName) return unexpected("the name of a tag");
      JINJA_TRY(auto stmt, parse_tag());
      if (stmt == nullptr) return block;
      JINJA_CHECK(expect_kind(TokenKind::kBlockEnd, "%}"));
      block.push_back(std::move(stmt));
    }
  }
  return block;
}

/// The end of a tag and what follows, up to the name of the tag that ends it.
Eval<Block> Parser::parse_body() {
  (void)skip_op(":");
  JINJA_CHECK(expect_kind(TokenKind::kBlockEnd, "%}"));
  return parse_block();
}

Eval<void> Parser::expect_end_tag(std::string_view name) {
  if (peek().kind == TokenKind::kEnd)
    return error(fmt::format("unexpected end of template, tag '{}' is missing", name));
  if (!skip_name(name)) {
    return error(fmt::format("unknown or misplaced tag '{}', expected '{}'", peek().text, name));
  }
  return {};
}

Eval<Block> Parser::parse_closed_body() {
  const int n_loops = std::exchange(n_loops_, 0);
  auto body = parse_body();
  n_loops_ = n_loops;
  return body;
}

/// Null for a tag that doesn't begin a statement.
Eval<std::unique_ptr<Stmt>> Parser::parse_tag() {
  const std::string& tag = peek().text;
  if (tag == "if") return parse_if();
  if (tag == "for") return parse_for();
  if (tag == "set") return parse_set();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call_block();
  if (tag == "filter") return parse_filter_block();
  if (tag == "with") return parse_with();
  if (tag == "generation") return parse_scope("endgeneration");
  if (tag == "break") return parse_loop_control(StmtKind::kBreak);
  if (tag == "continue") return parse_loop_control(StmtKind::kContinue);
  if (tag == "print") {
    auto output = make_stmt(StmtKind::kOutput);
    take();
    JINJA_TRY(ExprPtr expr, parse_tuple(true, false));
    output->exprs.push_back(std::move(expr));
    return output;
  }
  for (const char* other :
       {"block", "extends", "include", "import", "from", "autoescape", "do", "trans"}) {
    if (tag == other) return error(fmt::format("tag '{}' is not supported in chat templates", tag));
  }
  return std::unique_ptr<Stmt>();
}

Eval<std::unique_ptr<Stmt>> Parser::parse_if() {
  auto stmt = make_stmt(StmtKind::kIf);
  take();
  const Nesting conditions(n_conditions_);
  while (true) {
    JINJA_TRY(ExprPtr condition, parse_tuple(false, false));
    stmt->exprs.push_back(std::move(condition));
    JINJA_TRY(Block body, parse_body());
    stmt->bodies.push_back(std::move(body));
    if (!skip_name("elif")) break;
  }
  if (skip_name("else")) {
    JINJA_TRY(Block otherwise, parse_body());
    stmt->bodies.push_back(std::move(otherwise));
  }
  JINJA_CHECK(expect_end_tag("endif"));
  return stmt;
}

Eval<std::unique_ptr<Stmt>> Parser::parse_for() {
  auto stmt = make_stmt(StmtKind::kFor);
  take();
  JINJA_TRY(Target target, parse_target(false));
  stmt->targets.push_back(std::move(target));
  if (!skip_name("in")) return unexpected("'in'");
  JINJA_TRY(ExprPtr iterable, parse_tuple(false, false));
  stmt->exprs.push_back(std::move(iterable));
  ExprPtr condition;
  if (skip_name("if")) {
    JINJA_TRY(condition, parse_expression());
  }
  stmt->exprs.push_back(std::move(condition));
  stmt->recursive = skip_name("recursive");
  {
    const Nesting loops(n_loops_);
    JINJA_TRY(Block body, parse_body());
    stmt->bodies.push_back(std::move(body));
  }
  Block otherwise;
  if (skip_name("else")) {
    JINJA_TRY(otherwise, parse_body());
  }
  stmt->bodies.push_back(std::move(otherwise));
  JINJA_CHECK(expect_end_tag("endfor"));
  return stmt;
}

Eval<Target> Parser::parse_target_part(bool with_namespace) {
  const Nesting nesting(nesting_);
  if (too_deep()) return error("assignment nested too deeply");
  if (skip_op("(")) {
    JINJA_TRY(Target inner, parse_target(with_namespace));
    JINJA_CHECK(expect_op(")"));
    return inner;
  }
  Target target;
  JINJA_TRY(const std::string name, expect_name("a name to assign to"));
  for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) return error(fmt::format("can't assign to '{}'", name));
  }
  if ((!with_namespace || n_loops_ > 0) && name == "loop")
    return error("can't assign to the special variable 'loop'");
  target.name = intern(name);
  if (with_namespace && skip_op(".")) {
    JINJA_TRY(target.attribute, expect_name("the name of an attribute"));
  }
  return target;
}

Eval<Target> Parser::parse_target(bool with_namespace) {
  JINJA_TRY(Target first, parse_target_part(with_namespace));
  if (!is_op(",")) return first;
  Target tuple;
  tuple.is_tuple = true;
  tuple.parts.push_back(std::move(first));
  while (skip_op(",")) {
    if (is_op(")") || is_op("=") || is_name("in")) break;
    JINJA_TRY(Target part, parse_target_part(with_namespace));
    tuple.parts.push_back(std::move(part));
  }
  return tuple;
}

Eval<std::unique_ptr<Stmt>> Parser::parse_set() {
  auto stmt = make_stmt(StmtKind::kSet);
  take();
  JINJA_TRY(Target target, parse_target(true));
  stmt->targets.push_back(std::move(target));
  ExprPtr expr;
  if (skip_op("=")) {
    JINJA_TRY(expr, parse_tuple(true, false));
    stmt->exprs.push_back(std::move(expr));
    return stmt;
  }
  stmt->kind = StmtKind::kSetBlock;
  while (skip_op("|")) {
    JINJA_TRY(expr, parse_filter(std::move(expr)));
  }
  stmt->exprs.push_back(std::move(expr));
  JINJA_TRY(Block body, parse_body());
  stmt->bodies.push_back(std::move(body));
  JINJA_CHECK(expect_end_tag("endset"));
  return stmt;
}

Eval<void> Parser::parse_parameters(Stmt& stmt) {
  JINJA_CHECK(expect_op("("));
  while (!is_op(")")) {
    if (!stmt.parameters.empty()) JINJA_CHECK(expect_op(","));
    if (is_op(")")) break;
    Parameter parameter;
    JINJA_TRY(const std::string name, expect_name("the name of a parameter"));
    parameter.name = intern(name);
    if (skip_op("=")) {
      JINJA_TRY(parameter.default_value, parse_expression());
    } else if (!stmt.parameters.empty() && stmt.parameters.back().default_value != nullptr) {
      return error("parameter without a default after one with a default");
    }
    stmt.parameters.push_back(std::move(parameter));
  }
  take();
  return {};
}

Eval<std::unique_ptr<Stmt>> Parser::parse_macro() {
  auto stmt = make_stmt(StmtKind::kMacro);
  take();
  JINJA_TRY(stmt->text, expect_name("the name of the macro"));
  stmt->name = intern(stmt->text);
  JINJA_CHECK(parse_parameters(*stmt));
  Stmt* const outer = std::exchange(macro_, stmt.get());
  JINJA_TRY(Block body, parse_closed_body());
  macro_ = outer;
  stmt->bodies.push_back(std::move(body));
  JINJA_CHECK(expect_end_tag("endmacro"));
  return stmt;
}

Eval<std::unique_ptr<Stmt>> Parser::parse_call_block() {
  auto stmt = make_stmt(StmtKind::kCallBlock);
  take();
  if (is_op("(")) JINJA_CHECK(parse_parameters(*stmt));
  JINJA_TRY(ExprPtr call, parse_expression());
  if (call->kind != ExprKind::kCall)
    return error("a call block needs a call, as {% call name() %}");
  stmt->exprs.push_back(std::move(call));
  JINJA_TRY(Block body, parse_closed_body());
  stmt->bodies.push_back(std::move(body));
  JINJA_CHECK(expect_end_tag("endcall"));
  return stmt;
}

Eval<std::unique_ptr<Stmt>> Parser::parse_filter_block() {
  auto stmt = make_stmt(StmtKind::kFilterBlock);
  take();
  JINJA_TRY(ExprPtr filter, parse_filter(nullptr));
  while (skip_op("|")) {
    JINJA_TRY(filter, parse_filter(std::move(filter)));
  }
  stmt->exprs.push_back(std::move(filter));
  JINJA_TRY(Block body, parse_closed_body());
  stmt->bodies.push_back(std::move(body));
  JINJA_CHECK(expect_end_tag("endfilter"));
  return stmt;
}

Eval<std::unique_ptr<Stmt>> Parser::parse_with() {
  auto stmt = make_stmt(StmtKind::kWith);
  take();
  while (peek().kind != TokenKind::kBlockEnd) {
    if (!stmt->targets.empty()) JINJA_CHECK(expect_op(","));
    JINJA_TRY(Target target, parse_target_part(false));
    stmt->targets.push_back(std::move(target));
    JINJA_CHECK(expect_op("="));
    JINJA_TRY(ExprPtr value, parse_expression());
    stmt->exprs.push_back(std::move(value));
  }
  JINJA_TRY(Block body, parse_body());
  stmt->bodies.push_back(std::move(body));
  JINJA_CHECK(expect_end_tag("endwith"));
  return stmt;
}

Eval<std::unique_ptr<Stmt>> Parser::parse_scope(std::string_view end) {
  auto stmt = make_stmt(StmtKind::kScope);
  take();
  JINJA_TRY(Block body, parse_closed_body());
  stmt->bodies.push_back(std::move(body));
  JINJA_CHECK(expect_end_tag(end));
  return stmt;
}

Eval<std::unique_ptr<Stmt>> Parser::parse_loop_control(StmtKind kind) {
  auto stmt = make_stmt(kind);
  if (n_loops_ == 0) return error(fmt::format("'{}' outside of a loop", peek().text));
  take();
  return stmt;
}

Eval<std::unique_ptr<Ast>> parse(std::string_view source, const Limits& limits) {
  JINJA_TRY(std::vector<Token> tokens, tokenize(source));
  auto ast = std::make_unique<Ast>();
  JINJA_CHECK(Parser(std::move(tokens), limits, *ast).run());
  ast->assigned_first = find_assigned_first(*ast);
  return ast;
}

}  // namespace baton::jinja
