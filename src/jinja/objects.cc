#include "jinja/objects.h"

#include "jinja/print.h"

namespace baton::jinja {
namespace {

std::unique_ptr<Value> found(Value value) { return std::make_unique<Value>(std::move(value)); }

/// A method of an object that is called with its arguments only.
template <typename Self>
struct ObjectMethod final : Object {
  using Native = Eval<Value> (*)(Interpreter&, Self&, CallArgs&);
  ObjectMethod(Meter* meter, std::shared_ptr<Object> object, Native native)
      : Object(meter), self(std::move(object)), function(native) {
    depth = depth_around(self->depth, meter);
  }
  [[nodiscard]] std::string_view type_name() const override { return "method"; }
  [[nodiscard]] bool callable() const override { return true; }
  [[nodiscard]] Eval<Value> call(Interpreter& interpreter, CallArgs& args) override {
    return function(interpreter, static_cast<Self&>(*self), args);
  }
  const std::shared_ptr<Object> self;
  const Native function;
};

Eval<Value> loop_cycle(Interpreter&, LoopObject& loop, CallArgs& args) {
  if (args.positional.empty()) return raise("no items for cycling given");
  return args.positional[static_cast<size_t>(loop.index0) % args.positional.size()];
}

Eval<Value> loop_changed(Interpreter& interpreter, LoopObject& loop, CallArgs& args) {
  Value value = interpreter.list(std::move(args.positional), ListKind::kTuple);
  const bool same = loop.changed_value && equals(*loop.changed_value, value, &interpreter.meter());
  if (!same) {
    loop.depth = std::max(loop.depth, depth_around(depth_of(value), &interpreter.meter()));
    loop.changed_value = std::move(value);
  }
  return Value(!same);
}

Eval<Value> cycler_next(Interpreter&, Cycler& cycler, CallArgs&) {
  const auto& items = cycler.values.as_list()->items;
  Value value = items[cycler.at];
  cycler.at = (cycler.at + 1) % items.size();
  return value;
}

Eval<Value> cycler_reset(Interpreter&, Cycler& cycler, CallArgs&) {
  cycler.at = 0;
  return Value();
}

template <typename Self>
std::unique_ptr<Value> method_of(Interpreter& interpreter, Self& self,
                                 typename ObjectMethod<Self>::Native function) {
  return found(Value(std::shared_ptr<Object>(std::make_shared<ObjectMethod<Self>>(
      &interpreter.meter(), self.shared_from_this(), function))));
}

}  // namespace

Eval<std::unique_ptr<Value>> Namespace::attribute(Interpreter& interpreter, std::string_view name) {
  interpreter.meter().spend(static_cast<int64_t>(attributes.size() / 16));
  for (const auto& [key, value] : attributes) {
    if (key == name) return found(value);
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  grow(sizeof(Value) + sizeof(std::string) + name.size());
  attributes.emplace_back(std::string(name), std::move(value));
}

std::string Macro::describe() const { return fmt::format("<Macro {}>", string_repr(stmt.text)); }

Eval<std::unique_ptr<Value>> Macro::attribute(Interpreter& interpreter, std::string_view name) {
  if (name == "name") return found(interpreter.string(stmt.text));
  return nullptr;
}

Eval<Value> Macro::call(Interpreter& interpreter, CallArgs& args) {
  return interpreter.call_macro(stmt, closure, args);
}

LoopObject::LoopObject(Meter* meter, const Stmt& statement, std::vector<Value> values,
                       int64_t depth_0)
    : Object(meter), stmt(statement), source(std::move(values)), depth0(depth_0) {
  grow(source.size() * sizeof(Value));
  int deepest = 0;
  for (const Value& value : source) deepest = std::max(deepest, depth_of(value));
  depth = depth_around(deepest, meter);
}

Eval<bool> LoopObject::peek(Interpreter& interpreter) {
  if (!ahead.empty()) return true;
  JINJA_TRY(std::optional<Value> value, interpreter.next_item(*this));
  if (!value) return false;
  ahead.push_back(std::move(*value));
  return true;
}

Eval<bool> LoopObject::advance(Interpreter& interpreter) {
  JINJA_TRY(const bool more, peek(interpreter));
  if (!more) return false;
  previous = std::move(current);
  current = std::move(ahead.back());
  ahead.pop_back();
  ++index0;
  return true;
}

Eval<int64_t> LoopObject::length(Interpreter& interpreter) {
  if (stmt.exprs[1] == nullptr) {
    return index0 + 1 + static_cast<int64_t>(ahead.size() + source.size() - next_source);
  }
  std::vector<Value> rest;
  while (true) {
    JINJA_TRY(std::optional<Value> value, interpreter.next_item(*this));
    if (!value) break;
    rest.push_back(std::move(*value));
  }
  rest.insert(rest.begin(), ahead.rbegin(), ahead.rend());
  ahead.assign(rest.rbegin(), rest.rend());
  return index0 + 1 + static_cast<int64_t>(ahead.size());
}

Eval<std::unique_ptr<Value>> LoopObject::attribute(Interpreter& interpreter,
                                                   std::string_view name) {
  if (name == "index0") return found(Value(index0));
  if (name == "index") return found(Value(index0 + 1));
  if (name == "first") return found(Value(index0 == 0));
  if (name == "depth0") return found(Value(depth0));
  if (name == "depth") return found(Value(depth0 + 1));
  if (name == "cycle") return method_of<LoopObject>(interpreter, *this, loop_cycle);
  if (name == "changed") return method_of<LoopObject>(interpreter, *this, loop_changed);
  if (name == "previtem") {
    return found(previous ? *previous : interpreter.undefined("there is no previous item"));
  }
  if (name == "last" || name == "nextitem") {
    JINJA_TRY(const bool more, peek(interpreter));
    if (name == "last") return found(Value(!more));
    return found(more ? ahead.back() : interpreter.undefined("there is no next item"));
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    JINJA_TRY(const int64_t n, length(interpreter));
    return found(Value(name == "length" ? n : name == "revindex" ? n - index0 : n - index0 - 1));
  }
  return nullptr;
}

Eval<Value> LoopObject::call(Interpreter& interpreter, CallArgs& args) {
  if (args.positional.size() != 1 || !args.named.empty()) return raise("loop() takes one argument");
  return interpreter.recurse_loop(*this, args.positional[0]);
}

Cycler::Cycler(Meter* meter, Value list) : Object(meter), values(std::move(list)) {
  depth = depth_around(depth_of(values), meter);
}

Eval<std::unique_ptr<Value>> Cycler::attribute(Interpreter& interpreter, std::string_view name) {
  if (name == "current") return found(values.as_list()->items[at]);
  if (name == "next") return method_of<Cycler>(interpreter, *this, cycler_next);
  if (name == "reset") return method_of<Cycler>(interpreter, *this, cycler_reset);
  return nullptr;
}

Eval<Value> Joiner::call(Interpreter& interpreter, CallArgs&) {
  return std::exchange(used, true) ? separator : interpreter.string("");
}

}  // namespace baton::jinja
