// Tokens → syntax tree. Internal to src/jinja.
//
// Source of the grammar: jinja2/parser.py (3.1), with loop controls and the `generation` block of
// transformers. Unknown filters and tests are errors here unless an `if` guards them, as in Jinja.
#pragma once

#include <optional>
#include <string_view>

#include "jinja/ast.h"
#include "jinja/lexer.h"

namespace baton::jinja {

/// `source` is valid UTF-8.
[[nodiscard]] Eval<std::unique_ptr<Ast>> parse(std::string_view source, const Limits& limits);

/// The names of Ast::assigned_first.
[[nodiscard]] std::vector<NameId> find_assigned_first(const Ast& ast);

/// Recursive descent; one object for one template. Thread-compatible.
class Parser {
 public:
  Parser(std::vector<Token> tokens, const Limits& limits, Ast& ast)
      : tokens_(std::move(tokens)), limits_(limits), ast_(ast) {}

  [[nodiscard]] Eval<void> run();

 private:
  // parse_statements.cc
  [[nodiscard]] Eval<Block> parse_block();
  [[nodiscard]] Eval<Block> parse_body();
  [[nodiscard]] Eval<void> expect_end_tag(std::string_view name);
  [[nodiscard]] Eval<std::unique_ptr<Stmt>> parse_tag();
  [[nodiscard]] Eval<std::unique_ptr<Stmt>> parse_if();
  [[nodiscard]] Eval<std::unique_ptr<Stmt>> parse_for();
  [[nodiscard]] Eval<std::unique_ptr<Stmt>> parse_set();
  [[nodiscard]] Eval<std::unique_ptr<Stmt>> parse_macro();
  [[nodiscard]] Eval<std::unique_ptr<Stmt>> parse_call_block();
  [[nodiscard]] Eval<std::unique_ptr<Stmt>> parse_filter_block();
  [[nodiscard]] Eval<std::unique_ptr<Stmt>> parse_with();
  /// The body of a macro or of another block that loops and their controls don't reach into.
  [[nodiscard]] Eval<Block> parse_closed_body();
  [[nodiscard]] Eval<std::unique_ptr<Stmt>> parse_scope(std::string_view end);
  [[nodiscard]] Eval<std::unique_ptr<Stmt>> parse_loop_control(StmtKind kind);
  [[nodiscard]] Eval<void> parse_parameters(Stmt& stmt);
  [[nodiscard]] Eval<Target> parse_target(bool with_namespace);
  [[nodiscard]] Eval<Target> parse_target_part(bool with_namespace);
  [[nodiscard]] std::unique_ptr<Stmt> make_stmt(StmtKind kind) const;

  // parse_expressions.cc
  [[nodiscard]] Eval<ExprPtr> parse_tuple(bool with_conditional, bool in_parentheses);
  [[nodiscard]] Eval<ExprPtr> parse_expression() { return parse_conditional(); }
  [[nodiscard]] Eval<ExprPtr> parse_conditional();
  [[nodiscard]] Eval<ExprPtr> parse_or();
  [[nodiscard]] Eval<ExprPtr> parse_and();
  [[nodiscard]] Eval<ExprPtr> parse_not();
  [[nodiscard]] Eval<ExprPtr> parse_compare();
  [[nodiscard]] Eval<ExprPtr> parse_sum();
  [[nodiscard]] Eval<ExprPtr> parse_concat();
  [[nodiscard]] Eval<ExprPtr> parse_product();
  [[nodiscard]] Eval<ExprPtr> parse_power();
  [[nodiscard]] Eval<ExprPtr> parse_unary(bool with_filter);
  [[nodiscard]] Eval<ExprPtr> parse_primary();
  [[nodiscard]] Eval<ExprPtr> parse_name();
  [[nodiscard]] Eval<ExprPtr> parse_list();
  [[nodiscard]] Eval<ExprPtr> parse_dict();
  [[nodiscard]] Eval<ExprPtr> parse_postfix(ExprPtr expr);
  [[nodiscard]] Eval<ExprPtr> parse_filters(ExprPtr expr);
  [[nodiscard]] Eval<ExprPtr> parse_filter(ExprPtr input);
  [[nodiscard]] Eval<ExprPtr> parse_test(ExprPtr input);
  [[nodiscard]] Eval<ExprPtr> parse_attribute(ExprPtr object);
  [[nodiscard]] Eval<ExprPtr> parse_subscript(ExprPtr object);
  [[nodiscard]] Eval<ExprPtr> parse_subscript_part(ExprPtr& object, bool& is_slice);
  [[nodiscard]] Eval<ExprPtr> parse_call(ExprPtr callee);
  [[nodiscard]] Eval<void> parse_arguments(Expr& expr);
  [[nodiscard]] Eval<void> parse_argument(Expr& expr);
  [[nodiscard]] Eval<std::string> parse_dotted_name();
  [[nodiscard]] ExprPtr make_expr(ExprKind kind) const;
  /// Sets the depth of a finished node; fails if it is too deep.
  [[nodiscard]] Eval<ExprPtr> finish(ExprPtr expr) const;
  [[nodiscard]] Eval<ExprPtr> make_binary(ExprKind kind, Op op, ExprPtr left, ExprPtr right) const;

  // Tokens.
  [[nodiscard]] const Token& peek() const { return tokens_[at_]; }
  [[nodiscard]] const Token& peek_next() const {
    return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_];
  }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  [[nodiscard]] bool is_op(std::string_view op) const {
    return peek().kind == TokenKind::kOperator && peek().text == op;
  }
  [[nodiscard]] bool is_name(std::string_view name) const {
    return peek().kind == TokenKind::kName && peek().text == name;
  }
  bool skip_op(std::string_view op) { return is_op(op) && (take(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (take(), true); }
  [[nodiscard]] Eval<void> expect_op(std::string_view op);
  [[nodiscard]] Eval<void> expect_kind(TokenKind kind, std::string_view what);
  /// `wanted` must be a name; it is taken.
  [[nodiscard]] Eval<std::string> expect_name(std::string_view what);
  /// "unexpected '…', … expected" at the current token.
  [[nodiscard]] tl::unexpected<Failure> unexpected(std::string_view wanted) const;
  [[nodiscard]] tl::unexpected<Failure> error(std::string message) const;
  NameId intern(const std::string& name);

  /// Counts nesting while it lives.
  struct Nesting {
    explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    int& depth_;
  };
  [[nodiscard]] bool too_deep() const { return nesting_ > limits_.max_nesting; }

  std::vector<Token> tokens_;
  const Limits& limits_;
  Ast& ast_;
  size_t at_ = 0;
  int nesting_ = 0;
  int n_loops_ = 0;        ///< for loops around the current place, inside the current macro
  int n_conditions_ = 0;   ///< ifs around the current place: unknown filters fail only when reached
  Stmt* macro_ = nullptr;  ///< the macro around the current place
  std::optional<Failure> unknown_;  ///< the first unknown filter or test that no `if` guards
};

}  // namespace baton::jinja
