// Evaluates one rendering of a template. Internal to src/jinja.
//
// Scoping follows Jinja: for, macro, call, filter, with and set blocks have scopes of their own,
// `if` has none; an assignment goes to the innermost scope.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jinja/ast.h"
#include "jinja/template.h"

namespace baton::jinja {

/// Variables of one scope; few, so a linear search is fastest.
struct Scope {
  std::vector<std::pair<NameId, Value>> variables;
  std::shared_ptr<Scope> parent;
  void set(NameId name, Value value);
};

enum class Flow : uint8_t { kNext, kBreak, kContinue };

struct Namespace;
struct LoopObject;

/// Owner of all values made while rendering. Thread-compatible; used once.
class Interpreter {
 public:
  Interpreter(const Ast& ast, const Limits& limits, const RenderOptions& options);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  [[nodiscard]] Eval<std::string> run(const Variables& variables);

  // What filters, tests, methods and objects use.
  [[nodiscard]] Meter& meter() { return meter_; }
  [[nodiscard]] const RenderOptions& options() const { return options_; }
  [[nodiscard]] Value string(std::string text) { return make_string(&meter_, std::move(text)); }
  [[nodiscard]] Value list(std::vector<Value> items, ListKind kind = ListKind::kList) {
    return make_list(&meter_, std::move(items), kind);
  }
  [[nodiscard]] Value undefined(std::string hint) {
    return make_undefined(&meter_, std::move(hint));
  }
  /// str(value).
  [[nodiscard]] Eval<std::string> text(const Value& value) { return to_text_checked(value); }
  /// Fails unless a value of so many bytes may be made.
  [[nodiscard]] Eval<void> check_size(size_t n, size_t bytes_each);
  /// Charges `steps` and fails when there are none left: for loops outside of eval().
  [[nodiscard]] Eval<void> spend(int64_t steps);

  // access.cc
  /// object.name
  [[nodiscard]] Eval<Value> attribute(const Value& object, std::string_view name);
  /// object[key]
  [[nodiscard]] Eval<Value> item(const Value& object, const Value& key);
  [[nodiscard]] Eval<Value> slice(const Value& object, const Value& start, const Value& stop,
                                  const Value& step);
  /// The elements that a for loop sees.
  [[nodiscard]] Eval<std::vector<Value>> iterate(const Value& value);
  [[nodiscard]] Eval<Value> call(const Value& callee, CallArgs& args);
  [[nodiscard]] Eval<Value> call_method(const Value& object, std::string_view name, CallArgs& args);
  [[nodiscard]] Eval<Value> apply_filter(std::string_view name, const Value& input, CallArgs& args);
  [[nodiscard]] Eval<bool> apply_test(std::string_view name, const Value& input, CallArgs& args);

  // operators.cc
  [[nodiscard]] Eval<Value> binary(Op op, const Value& left, const Value& right);
  [[nodiscard]] Eval<bool> compare(Op op, const Value& left, const Value& right);
  [[nodiscard]] Eval<Value> negate(const Value& value);

  // statements.cc
  /// Runs a macro (or the body of a call block) and returns what it printed.
  [[nodiscard]] Eval<Value> call_macro(const Stmt& macro, const std::shared_ptr<Scope>& closure,
                                       CallArgs& args);
  /// The next element of a for loop that passes its condition; null at the end.
  [[nodiscard]] Eval<std::optional<Value>> next_item(LoopObject& loop);
  /// loop(iterable) in a recursive for.
  [[nodiscard]] Eval<Value> recurse_loop(const LoopObject& loop, const Value& iterable);
  /// Keeps a namespace until the end, when it is emptied (it may contain itself).
  void adopt(std::shared_ptr<Namespace> space) { namespaces_.push_back(std::move(space)); }

 private:
  // expressions.cc
  [[nodiscard]] Eval<Value> eval(const Expr& expr);
  [[nodiscard]] Eval<Value> eval_any(const Expr& expr);
  [[nodiscard]] Eval<Value> eval_name(const Expr& expr);
  [[nodiscard]] Eval<Value> eval_list(const Expr& expr);
  [[nodiscard]] Eval<Value> eval_dict(const Expr& expr);
  [[nodiscard]] Eval<Value> eval_slice(const Expr& expr);
  [[nodiscard]] Eval<Value> eval_call(const Expr& expr);
  [[nodiscard]] Eval<Value> eval_filter(const Expr& expr, const Value* input);
  [[nodiscard]] Eval<Value> eval_test(const Expr& expr);
  [[nodiscard]] Eval<Value> eval_binary(const Expr& expr);
  [[nodiscard]] Eval<Value> eval_compare(const Expr& expr);
  [[nodiscard]] Eval<Value> eval_concat(const Expr& expr);
  [[nodiscard]] Eval<Value> eval_conditional(const Expr& expr);
  [[nodiscard]] Eval<CallArgs> eval_args(const Expr& expr);
  [[nodiscard]] Eval<void> eval_star_args(const Expr& expr, CallArgs& args);
  [[nodiscard]] Eval<std::string> to_text_checked(const Value& value);

  // statements.cc
  [[nodiscard]] Eval<Flow> exec(const Block& block);
  [[nodiscard]] Eval<Flow> exec_any(const Stmt& stmt);
  [[nodiscard]] Eval<Flow> exec_if(const Stmt& stmt);
  [[nodiscard]] Eval<Flow> exec_for(const Stmt& stmt);
  [[nodiscard]] Eval<Flow> run_loop(const Stmt& stmt, const Value& iterable, int64_t depth0);
  [[nodiscard]] Eval<Flow> exec_set(const Stmt& stmt);
  [[nodiscard]] Eval<Flow> exec_set_block(const Stmt& stmt);
  [[nodiscard]] Eval<Flow> exec_macro(const Stmt& stmt);
  [[nodiscard]] Eval<Flow> exec_call_block(const Stmt& stmt);
  [[nodiscard]] Eval<Flow> exec_filter_block(const Stmt& stmt);
  [[nodiscard]] Eval<Flow> exec_with(const Stmt& stmt);
  [[nodiscard]] Eval<Flow> exec_output(const Stmt& stmt);
  [[nodiscard]] Eval<void> bind_arguments(const Stmt& macro, CallArgs& args);
  [[nodiscard]] Eval<void> assign(const Target& target, const Value& value);
  [[nodiscard]] Eval<void> emit(std::string_view text);
  /// What `block` prints, in a scope of its own.
  [[nodiscard]] Eval<std::string> capture(const Block& block);
  void push_scope();
  void pop_scope();
  /// Keeps the current scope until the end: something that may live as long refers to it.
  void keep_scope();
  [[nodiscard]] const Value* find(NameId name);
  [[nodiscard]] tl::unexpected<Failure> overrun() const;
  [[nodiscard]] const std::string& name_of(NameId name) const {
    return ast_.names[static_cast<size_t>(name)];
  }

  Meter meter_;  // first: everything below gives its bytes back to it
  const Ast& ast_;
  const RenderOptions& options_;
  std::vector<std::optional<Value>> globals_;  ///< [names]: the caller's variables, then functions
  std::shared_ptr<Scope> scope_;
  std::vector<std::shared_ptr<Scope>> captured_;  ///< kept; emptied at the end
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::string* out_ = nullptr;
  size_t output_bytes_ = 0;  ///< in all buffers
  int depth_ = 0;            ///< evaluator frames
};

}  // namespace baton::jinja
