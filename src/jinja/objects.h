// The objects of the template language. Internal to src/jinja.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jinja/interpreter.h"

namespace baton::jinja {

/// namespace(): the one mutable value.
struct Namespace final : Object {
  explicit Namespace(Meter* meter) : Object(meter) {}
  [[nodiscard]] std::string_view type_name() const override { return "Namespace"; }
  [[nodiscard]] Eval<std::unique_ptr<Value>> attribute(Interpreter& interpreter,
                                                       std::string_view name) override;
  void set(std::string_view name, Value value);
  std::vector<std::pair<std::string, Value>> attributes;
};

/// A macro, or the body of a call block as caller().
struct Macro final : Object {
  Macro(Meter* meter, const Stmt& statement, std::shared_ptr<Scope> scope)
      : Object(meter), stmt(statement), closure(std::move(scope)) {}
  [[nodiscard]] std::string_view type_name() const override { return "Macro"; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] Eval<std::unique_ptr<Value>> attribute(Interpreter& interpreter,
                                                       std::string_view name) override;
  [[nodiscard]] bool callable() const override { return true; }
  [[nodiscard]] Eval<Value> call(Interpreter& interpreter, CallArgs& args) override;
  const Stmt& stmt;
  const std::shared_ptr<Scope> closure;
};

using NativeFunction = Eval<Value> (*)(Interpreter&, CallArgs&);

/// A global function.
struct Function final : Object {
  Function(Meter* meter, NativeFunction native) : Object(meter), function(native) {}
  [[nodiscard]] std::string_view type_name() const override { return "function"; }
  [[nodiscard]] bool callable() const override { return true; }
  [[nodiscard]] Eval<Value> call(Interpreter& interpreter, CallArgs& args) override {
    return function(interpreter, args);
  }
  const NativeFunction function;
};

using MethodFunction = Eval<Value> (*)(Interpreter&, const Value& self, CallArgs&);

/// The method of that name, null if the value has none (methods.cc).
[[nodiscard]] MethodFunction find_method(const Value& value, std::string_view name);
[[nodiscard]] MethodFunction find_string_method(std::string_view name);
/// str.format and the % operator of strings (format.cc).
[[nodiscard]] Eval<Value> format_method(Interpreter& interpreter, const Value& self,
                                        CallArgs& args);
[[nodiscard]] Eval<Value> format_percent(Interpreter& interpreter, const std::string& format,
                                         const Value& arguments);

/// value.method, not called yet.
struct BoundMethod final : Object {
  BoundMethod(Meter* meter, Value value, MethodFunction function)
      : Object(meter), self(std::move(value)), method(function) {
    depth = depth_around(depth_of(self), meter);
  }
  [[nodiscard]] std::string_view type_name() const override { return "builtin_function_or_method"; }
  [[nodiscard]] bool callable() const override { return true; }
  [[nodiscard]] Eval<Value> call(Interpreter& interpreter, CallArgs& args) override {
    return method(interpreter, self, args);
  }
  const Value self;
  const MethodFunction method;
};

/// The variable `loop`. Elements are drawn one by one, since the condition of a loop may depend on
/// what its body does; loop.last and loop.nextitem draw one ahead, loop.length all.
struct LoopObject final : Object {
  LoopObject(Meter* meter, const Stmt& statement, std::vector<Value> values, int64_t depth0);
  [[nodiscard]] std::string_view type_name() const override { return "LoopContext"; }
  [[nodiscard]] Eval<std::unique_ptr<Value>> attribute(Interpreter& interpreter,
                                                       std::string_view name) override;
  [[nodiscard]] bool callable() const override { return true; }
  [[nodiscard]] Eval<Value> call(Interpreter& interpreter, CallArgs& args) override;
  /// Moves to the next element; false at the end.
  [[nodiscard]] Eval<bool> advance(Interpreter& interpreter);
  [[nodiscard]] Eval<bool> peek(Interpreter& interpreter);
  [[nodiscard]] Eval<int64_t> length(Interpreter& interpreter);

  const Stmt& stmt;
  std::shared_ptr<Scope> scope;  ///< around the loop
  std::vector<Value> source;     ///< not filtered yet
  size_t next_source = 0;
  const int64_t depth0;
  int64_t index0 = -1;
  std::optional<Value> previous;
  std::optional<Value> current;
  std::vector<Value> ahead;  ///< drawn but not visited, in reverse
  std::optional<Value> changed_value;
};

/// cycler(a, b, …): next() goes round.
struct Cycler final : Object {
  Cycler(Meter* meter, Value list);
  [[nodiscard]] std::string_view type_name() const override { return "Cycler"; }
  [[nodiscard]] Eval<std::unique_ptr<Value>> attribute(Interpreter& interpreter,
                                                       std::string_view name) override;
  const Value values;
  size_t at = 0;
};

/// joiner(sep): nothing on the first call, then `sep`.
struct Joiner final : Object {
  Joiner(Meter* meter, Value text) : Object(meter), separator(std::move(text)) {}
  [[nodiscard]] std::string_view type_name() const override { return "Joiner"; }
  [[nodiscard]] bool callable() const override { return true; }
  [[nodiscard]] Eval<Value> call(Interpreter& interpreter, CallArgs& args) override;
  const Value separator;  ///< a string
  bool used = false;
};

}  // namespace baton::jinja
