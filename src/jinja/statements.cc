// Execution of statements.
#include "jinja/interpreter.h"
#include "jinja/objects.h"
#include "jinja/print.h"

namespace baton::jinja {

void Scope::set(NameId name, Value value) {
  for (auto& [id, old] : variables) {
    if (id == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(const Ast& ast, const Limits& limits, const RenderOptions& options)
    : meter_(limits),
      ast_(ast),
      options_(options),
      globals_(ast.names.size()),
      scope_(std::make_shared<Scope>()) {}

// Namespaces and macros can refer to each other in circles, and in chains as long as there are
// steps: emptying them one by one, while all are held, frees them without recursion.
Interpreter::~Interpreter() {
  while (scope_ != nullptr) {
    captured_.push_back(scope_);
    scope_ = scope_->parent;
  }
  for (const auto& space : namespaces_) space->attributes.clear();
  for (const auto& scope : captured_) scope->variables.clear();
}

void Interpreter::push_scope() {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope_;
  scope_ = std::move(inner);
}

void Interpreter::pop_scope() { scope_ = std::shared_ptr<Scope>(scope_->parent); }

void Interpreter::keep_scope() {
  if (!captured_.empty() && captured_.back() == scope_) return;
  constexpr size_t kBytes = 192;  // what a scope takes, kept to the end
  meter_.add(kBytes);
  captured_.push_back(scope_);
}

Eval<std::string> Interpreter::run(const Variables& variables) {
  for (const auto& [name, value] : variables) {
    const auto it = ast_.name_ids.find(name);
    if (it != ast_.name_ids.end()) globals_[static_cast<size_t>(it->second)] = value;
  }
  for (size_t id = 0; id < globals_.size(); ++id) {
    if (!globals_[id]) globals_[id] = find_global(meter_, ast_.names[id]);
  }
  for (const NameId name : ast_.assigned_first) {
    scope_->set(name, undefined(fmt::format("'{}' is undefined", name_of(name))));
  }
  std::string out;
  out_ = &out;
  JINJA_CHECK(exec(ast_.body));
  return out;
}

Eval<Flow> Interpreter::exec(const Block& block) {
  if (++depth_ > meter_.limits().max_recursion) return raise("maximum recursion depth exceeded");
  for (const auto& stmt : block) {
    auto flow = exec_any(*stmt);
    if (!flow) {
      if (flow.error().line == 0) flow.error().line = stmt->line;
      return flow;
    }
    if (*flow != Flow::kNext) {
      --depth_;
      return flow;
    }
  }
  --depth_;
  return Flow::kNext;
}

Eval<Flow> Interpreter::exec_any(const Stmt& stmt) {
  JINJA_CHECK(spend(1));
  switch (stmt.kind) {
    case StmtKind::kText:
      JINJA_CHECK(emit(stmt.text));
      return Flow::kNext;
    case StmtKind::kOutput:
      return exec_output(stmt);
    case StmtKind::kIf:
      return exec_if(stmt);
    case StmtKind::kFor:
      return exec_for(stmt);
    case StmtKind::kSet:
      return exec_set(stmt);
    case StmtKind::kSetBlock:
      return exec_set_block(stmt);
    case StmtKind::kMacro:
      return exec_macro(stmt);
    case StmtKind::kCallBlock:
      return exec_call_block(stmt);
    case StmtKind::kFilterBlock:
      return exec_filter_block(stmt);
    case StmtKind::kWith:
      return exec_with(stmt);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
    case StmtKind::kScope:
      break;
  }
  push_scope();
  JINJA_TRY(const Flow flow, exec(stmt.bodies[0]));
  pop_scope();
  return flow;
}

Eval<void> Interpreter::emit(std::string_view text) {
  output_bytes_ += text.size();
  if (output_bytes_ > meter_.limits().max_output_bytes) {
    return raise("template prints more than {} bytes", meter_.limits().max_output_bytes);
  }
  meter_.spend_bytes(text.size());
  out_->append(text);
  return {};
}

Eval<Flow> Interpreter::exec_output(const Stmt& stmt) {
  JINJA_TRY(const Value value, eval(*stmt.exprs[0]));
  if (value.is_string()) {
    JINJA_CHECK(emit(value.text()));
  } else {
    JINJA_TRY(const std::string shown, text(value));
    JINJA_CHECK(emit(shown));
  }
  return Flow::kNext;
}

Eval<Flow> Interpreter::exec_if(const Stmt& stmt) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i) {
    JINJA_TRY(const Value condition, eval(*stmt.exprs[i]));
    if (truthy(condition)) return exec(stmt.bodies[i]);
  }
  return stmt.bodies.size() > stmt.exprs.size() ? exec(stmt.bodies.back())
                                                : Eval<Flow>(Flow::kNext);
}

Eval<Flow> Interpreter::exec_for(const Stmt& stmt) {
  JINJA_TRY(const Value iterable, eval(*stmt.exprs[0]));
  return run_loop(stmt, iterable, 0);
}

Eval<Flow> Interpreter::run_loop(const Stmt& stmt, const Value& iterable, int64_t depth0) {
  JINJA_TRY(std::vector<Value> items, iterate(iterable));
  const auto loop = std::make_shared<LoopObject>(&meter_, stmt, std::move(items), depth0);
  loop->scope = scope_;
  // A recursive loop can be called as long as it is reachable; it may be part of a circle.
  if (stmt.recursive) keep_scope();
  bool completed = false;
  while (true) {
    JINJA_TRY(const bool more, loop->advance(*this));
    if (!more) break;
    push_scope();
    scope_->set(kLoopName, Value(std::shared_ptr<Object>(loop)));
    JINJA_CHECK(assign(stmt.targets[0], *loop->current));
    JINJA_TRY(const Flow flow, exec(stmt.bodies[0]));
    pop_scope();
    if (flow == Flow::kBreak) break;
    // As in jinja2: an iteration that ends in `continue` doesn't keep `else` from running.
    if (flow == Flow::kNext) completed = true;
  }
  if (!stmt.recursive) loop->scope.reset();
  if (completed || stmt.bodies[1].empty()) return Flow::kNext;
  push_scope();
  JINJA_TRY(const Flow flow, exec(stmt.bodies[1]));
  pop_scope();
  return flow;
}

Eval<std::optional<Value>> Interpreter::next_item(LoopObject& loop) {
  while (loop.next_source < loop.source.size()) {
    JINJA_CHECK(spend(1));
    Value value = std::move(loop.source[loop.next_source++]);
    const ExprPtr& condition = loop.stmt.exprs[1];
    if (condition == nullptr) return std::optional(std::move(value));
    auto outer = scope_;
    scope_ = loop.scope;
    push_scope();
    JINJA_CHECK(assign(loop.stmt.targets[0], value));
    JINJA_TRY(const Value passes, eval(*condition));
    scope_ = std::move(outer);
    if (truthy(passes)) return std::optional(std::move(value));
  }
  return std::optional<Value>();
}

Eval<Value> Interpreter::recurse_loop(const LoopObject& loop, const Value& iterable) {
  if (!loop.stmt.recursive) return raise("the loop must have the 'recursive' marker to be called");
  auto outer = scope_;
  scope_ = loop.scope;
  std::string printed;
  std::string* const out = std::exchange(out_, &printed);
  JINJA_CHECK(run_loop(loop.stmt, iterable, loop.depth0 + 1));
  out_ = out;
  scope_ = std::move(outer);
  output_bytes_ -= printed.size();
  return string(std::move(printed));
}

Eval<void> Interpreter::assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    JINJA_TRY(const std::vector<Value> items, iterate(value));
    if (items.size() < target.parts.size()) {
      return raise("not enough values to unpack (expected {}, got {})", target.parts.size(),
                   items.size());
    }
    if (items.size() > target.parts.size()) {
      return raise("too many values to unpack (expected {})", target.parts.size());
    }
    for (size_t i = 0; i < items.size(); ++i) JINJA_CHECK(assign(target.parts[i], items[i]));
    return {};
  }
  if (target.attribute.empty()) {
    scope_->set(target.name, value);
    return {};
  }
  const Value* object = find(target.name);
  auto* space = object != nullptr ? dynamic_cast<Namespace*>(object->as_object()) : nullptr;
  if (space == nullptr) return raise("cannot assign attribute on non-namespace object");
  space->set(target.attribute, value);
  return {};
}

Eval<Flow> Interpreter::exec_set(const Stmt& stmt) {
  JINJA_TRY(const Value value, eval(*stmt.exprs[0]));
  JINJA_CHECK(assign(stmt.targets[0], value));
  return Flow::kNext;
}

Eval<std::string> Interpreter::capture(const Block& block) {
  std::string printed;
  std::string* const out = std::exchange(out_, &printed);
  push_scope();
  JINJA_CHECK(exec(block));
  pop_scope();
  out_ = out;
  output_bytes_ -= printed.size();
  return printed;
}

Eval<Flow> Interpreter::exec_set_block(const Stmt& stmt) {
  JINJA_TRY(std::string printed, capture(stmt.bodies[0]));
  Value value = string(std::move(printed));
  if (stmt.exprs[0] != nullptr) {
    JINJA_TRY(value, eval_filter(*stmt.exprs[0], &value));
  }
  JINJA_CHECK(assign(stmt.targets[0], value));
  return Flow::kNext;
}

Eval<Flow> Interpreter::exec_filter_block(const Stmt& stmt) {
  JINJA_TRY(std::string printed, capture(stmt.bodies[0]));
  const Value input = string(std::move(printed));
  JINJA_TRY(const Value value, eval_filter(*stmt.exprs[0], &input));
  JINJA_TRY(const std::string shown, text(value));
  JINJA_CHECK(emit(shown));
  return Flow::kNext;
}

Eval<Flow> Interpreter::exec_with(const Stmt& stmt) {
  std::vector<Value> values;
  for (const ExprPtr& expr : stmt.exprs) {
    JINJA_TRY(Value value, eval(*expr));
    values.push_back(std::move(value));
  }
  push_scope();
  for (size_t i = 0; i < values.size(); ++i) JINJA_CHECK(assign(stmt.targets[i], values[i]));
  JINJA_TRY(const Flow flow, exec(stmt.bodies[0]));
  pop_scope();
  return flow;
}

Eval<Flow> Interpreter::exec_macro(const Stmt& stmt) {
  keep_scope();
  scope_->set(stmt.name,
              Value(std::shared_ptr<Object>(std::make_shared<Macro>(&meter_, stmt, scope_))));
  return Flow::kNext;
}

Eval<Flow> Interpreter::exec_call_block(const Stmt& stmt) {
  keep_scope();
  const Expr& call_expr = *stmt.exprs[0];
  JINJA_TRY(const Value function, eval(*call_expr.children[0]));
  JINJA_TRY(CallArgs args, eval_args(call_expr));
  args.named.emplace_back(
      "caller", Value(std::shared_ptr<Object>(std::make_shared<Macro>(&meter_, stmt, scope_))));
  JINJA_TRY(const Value value, call(function, args));
  JINJA_TRY(const std::string shown, text(value));
  JINJA_CHECK(emit(shown));
  return Flow::kNext;
}

/// Sets the parameters of `macro` in the current scope.
Eval<void> Interpreter::bind_arguments(const Stmt& macro, CallArgs& args) {
  const size_t n_parameters = macro.parameters.size();
  const auto take_named = [&](std::string_view name, Value& value) {
    for (size_t i = 0; i < args.named.size(); ++i) {
      if (args.named[i].first != name) continue;
      value = std::move(args.named[i].second);
      args.named.erase(args.named.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    return false;
  };
  // All parameters exist before the first default is evaluated: it sees those, not outer variables.
  Value named;
  std::vector<const Parameter*> missing;
  for (size_t i = 0; i < n_parameters; ++i) {
    const Parameter& parameter = macro.parameters[i];
    const std::string& name = name_of(parameter.name);
    if (i < args.positional.size()) {
      scope_->set(parameter.name, args.positional[i]);
    } else if (take_named(name, named)) {
      scope_->set(parameter.name, named);
    } else {
      scope_->set(parameter.name, undefined(fmt::format("parameter '{}' was not provided", name)));
      if (parameter.default_value != nullptr) missing.push_back(&parameter);
    }
  }
  for (const Parameter* parameter : missing) {
    JINJA_TRY(Value value, eval(*parameter->default_value));
    scope_->set(parameter->name, std::move(value));
  }
  if (macro.kind == StmtKind::kMacro) {
    if (take_named("caller", named)) scope_->set(kCallerName, named);
  }
  if (macro.takes_kwargs) {
    auto rest = std::make_shared<Dict>(&meter_);
    for (auto& [name, value] : args.named) rest->set(string(name), std::move(value));
    scope_->set(kKwargsName, Value(std::move(rest)));
  } else if (!args.named.empty()) {
    return raise("macro '{}' takes no keyword argument '{}'", macro.text, args.named.front().first);
  }
  if (macro.takes_varargs) {
    std::vector<Value> rest;
    for (size_t i = n_parameters; i < args.positional.size(); ++i)
      rest.push_back(args.positional[i]);
    scope_->set(kVarargsName, list(std::move(rest), ListKind::kTuple));
  } else if (args.positional.size() > n_parameters) {
    return raise("macro '{}' takes not more than {} argument(s)", macro.text, n_parameters);
  }
  return {};
}

Eval<Value> Interpreter::call_macro(const Stmt& macro, const std::shared_ptr<Scope>& closure,
                                    CallArgs& args) {
  auto outer = scope_;
  scope_ = closure;
  push_scope();
  JINJA_CHECK(bind_arguments(macro, args));
  std::string printed;
  std::string* const out = std::exchange(out_, &printed);
  JINJA_CHECK(exec(macro.bodies[0]));
  out_ = out;
  scope_ = std::move(outer);
  output_bytes_ -= printed.size();
  return string(std::move(printed));
}

}  // namespace baton::jinja
