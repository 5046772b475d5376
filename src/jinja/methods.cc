// Methods of dicts, lists and numbers; which value has which.
#include <cmath>

#include "jinja/arguments.h"
#include "jinja/objects.h"

namespace baton::jinja {
namespace {

Eval<Value> dict_get(Interpreter&, const Value& self, CallArgs& args) {
  if (!args.named.empty()) return raise("dict.get() takes no keyword arguments");
  JINJA_TRY(const BoundArgs bound, bind("get", args, {"key", "default"}, 1));
  if (!is_hashable(*bound[0])) return raise("unhashable type: '{}'", type_name(*bound[0]));
  if (const Value* value = self.as_dict()->find(*bound[0])) return *value;
  return bound[1] != nullptr ? *bound[1] : Value();
}

Eval<Value> dict_view(Interpreter& interpreter, const Value& self, CallArgs& args, ListKind kind) {
  JINJA_CHECK(bind("items", args, {}));
  std::vector<Value> values;
  values.reserve(self.as_dict()->entries.size());
  for (const auto& [key, value] : self.as_dict()->entries) {
    values.push_back(kind == ListKind::kKeys ? key
                     : kind == ListKind::kValues
                         ? value
                         : interpreter.list({key, value}, ListKind::kTuple));
  }
  return interpreter.list(std::move(values), kind);
}

Eval<Value> dict_items(Interpreter& interpreter, const Value& self, CallArgs& args) {
  return dict_view(interpreter, self, args, ListKind::kItems);
}
Eval<Value> dict_keys(Interpreter& interpreter, const Value& self, CallArgs& args) {
  return dict_view(interpreter, self, args, ListKind::kKeys);
}
Eval<Value> dict_values(Interpreter& interpreter, const Value& self, CallArgs& args) {
  return dict_view(interpreter, self, args, ListKind::kValues);
}

// Values can't change, so a copy is the value itself.
Eval<Value> copy(Interpreter&, const Value& self, CallArgs& args) {
  JINJA_CHECK(bind("copy", args, {}));
  return self;
}

Eval<Value> list_count(Interpreter& interpreter, const Value& self, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("count", args, {"value"}, 1));
  int64_t n = 0;
  for (const Value& item : self.as_list()->items)
    n += equals(item, *bound[0], &interpreter.meter()) ? 1 : 0;
  return Value(n);
}

Eval<Value> list_index(Interpreter& interpreter, const Value& self, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("index", args, {"value", "start", "stop"}, 1));
  const auto& items = self.as_list()->items;
  const auto n = static_cast<int64_t>(items.size());
  JINJA_TRY(int64_t start, bound.integer(1, 0));
  JINJA_TRY(int64_t stop, bound.integer(2, n));
  if (start < 0) start = std::max<int64_t>(start < -n ? 0 : start + n, 0);
  if (stop < 0) stop = stop < -n ? 0 : stop + n;
  for (int64_t i = start; i < std::min(stop, n); ++i) {
    if (equals(items[static_cast<size_t>(i)], *bound[0], &interpreter.meter())) return Value(i);
  }
  return raise("value is not in the {}", type_name(self));
}

Eval<Value> is_integer(Interpreter&, const Value& self, CallArgs& args) {
  JINJA_CHECK(bind("is_integer", args, {}));
  const double value = self.number();
  return Value(std::isfinite(value) && value == std::floor(value));
}

Eval<Value> bit_length(Interpreter&, const Value& self, CallArgs& args) {
  JINJA_CHECK(bind("bit_length", args, {}));
  const int64_t value = self.integer();
  uint64_t magnitude = value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  int64_t n = 0;
  for (; magnitude != 0; magnitude >>= 1) ++n;
  return Value(n);
}

struct NamedMethod {
  std::string_view name;
  MethodFunction function;
};

constexpr NamedMethod kDictMethods[] = {{"get", dict_get},
                                        {"items", dict_items},
                                        {"keys", dict_keys},
                                        {"values", dict_values},
                                        {"copy", copy}};
constexpr NamedMethod kListMethods[] = {
    {"count", list_count}, {"index", list_index}, {"copy", copy}};
constexpr NamedMethod kIntMethods[] = {{"bit_length", bit_length}};
constexpr NamedMethod kFloatMethods[] = {{"is_integer", is_integer}};

template <size_t kSize>
MethodFunction find_in(const NamedMethod (&methods)[kSize], std::string_view name) {
  for (const NamedMethod& method : methods) {
    if (method.name == name) return method.function;
  }
  return nullptr;
}

}  // namespace

MethodFunction find_method(const Value& value, std::string_view name) {
  if (value.is_string()) return find_string_method(name);
  if (value.as_dict() != nullptr) return find_in(kDictMethods, name);
  if (value.is_integral()) return find_in(kIntMethods, name);
  if (value.as_float() != nullptr) return find_in(kFloatMethods, name);
  const List* list = value.as_list();
  if (list == nullptr || list->kind > ListKind::kRange) return nullptr;
  if (list->kind != ListKind::kList && name == "copy") return nullptr;
  return find_in(kListMethods, name);
}

}  // namespace baton::jinja
