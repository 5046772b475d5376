// Attributes, items, slices, iteration and calls.
#include <algorithm>

#include "jinja/interpreter.h"
#include "jinja/objects.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

/// "dict object", None: how undefined values name what they were looked up in.
std::string describe_type(const Value& value) {
  if (value.is_none()) return "None";
  return fmt::format("{} object", type_name(value));
}

/// Methods that would change a value: the sandbox refuses them.
bool is_mutator(const Value& value, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                               "insert", "sort",  "extend", "remove"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (value.is_list(ListKind::kList))
    return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  if (value.as_dict() != nullptr)
    return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  return false;
}

struct SliceBounds {
  int64_t start;
  int64_t step;
  int64_t n;
};

int64_t clamp_bound(int64_t bound, int64_t length, int64_t low, int64_t high) {
  if (bound < 0) bound = bound < -length ? -1 : bound + length;
  return std::clamp(bound, low, high);
}

/// As slice.indices() of Python.
Eval<SliceBounds> slice_bounds(const Value& start, const Value& stop, const Value& step,
                               int64_t length) {
  for (const Value* bound : {&start, &stop, &step}) {
    if (bound->is_undefined()) return raise("{}", bound->as_undefined()->hint);
    if (!bound->is_none() && !bound->is_integral())
      return raise("slice indices must be integers or None");
  }
  const int64_t by = step.is_none() ? 1 : step.integer();
  if (by == 0) return raise("slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1;
  const int64_t high = by > 0 ? length : length - 1;
  const int64_t from =
      start.is_none() ? (by > 0 ? low : high) : clamp_bound(start.integer(), length, low, high);
  const int64_t to =
      stop.is_none() ? (by > 0 ? high : low) : clamp_bound(stop.integer(), length, low, high);
  const int64_t span = by > 0 ? to - from : from - to;
  // Unsigned: the step may be the smallest integer.
  const uint64_t stride = by > 0 ? static_cast<uint64_t>(by) : -static_cast<uint64_t>(by);
  const int64_t n =
      span <= 0 ? 0 : static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / stride) + 1;
  return SliceBounds{from, n > 1 ? by : 1, n};
}

}  // namespace

Eval<Value> Interpreter::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) return raise("{}", object.as_undefined()->hint);
  if (name.substr(0, 1) == "_" || is_mutator(object, name)) {
    return make_undefined(&meter_, fmt::format("access to attribute '{}' of '{}' object is unsafe.",
                                               name, type_name(object)));
  }
  if (Object* thing = object.as_object()) {
    JINJA_TRY(const auto value, thing->attribute(*this, name));
    if (value != nullptr) return std::move(*value);
  } else if (const MethodFunction method = find_method(object, name)) {
    return Value(std::shared_ptr<Object>(std::make_shared<BoundMethod>(&meter_, object, method)));
  } else if (object.is_list(ListKind::kGroup) && (name == "grouper" || name == "list")) {
    return object.as_list()->items[name == "list" ? 1 : 0];
  } else if (const Dict* dict = object.as_dict()) {
    meter_.spend(static_cast<int64_t>(std::min<size_t>(dict->entries.size(), 4)) / 4);
    if (const Value* value = dict->find(name)) return *value;
  }
  return undefined(fmt::format("'{}' has no attribute '{}'", describe_type(object), name));
}

Eval<Value> Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) return raise("{}", object.as_undefined()->hint);
  if (const Dict* dict = object.as_dict()) {
    if (const Value* value = dict->find(key)) return *value;
  } else if (key.is_integral()) {
    int64_t index = key.integer();
    const List* items = object.as_list();
    if (items != nullptr && items->kind <= ListKind::kRange) {
      const auto length = static_cast<int64_t>(items->items.size());
      if (index < 0) index += length;
      if (index >= 0 && index < length) return items->items[static_cast<size_t>(index)];
    } else if (object.is_string()) {
      const std::string& text = object.text();
      meter_.spend_bytes(text.size());
      const auto length = static_cast<int64_t>(count_points(text));
      if (index < 0) index += length;
      if (index >= 0 && index < length) {
        const size_t begin = byte_offset(text, static_cast<size_t>(index));
        size_t end = begin;
        (void)next_point(text, end);
        return string(text.substr(begin, end - begin));
      }
    }
  }
  if (key.is_string()) {
    const std::string& name = key.text();
    const bool is_dict = object.as_dict() != nullptr;
    // A dict was searched already; what is left are methods.
    if (!is_dict || name.substr(0, 1) == "_" || is_mutator(object, name) ||
        find_method(object, name)) {
      return attribute(object, name);
    }
    return undefined(fmt::format("'{}' has no attribute '{}'", describe_type(object), name));
  }
  JINJA_TRY(const std::string shown, to_repr(key, meter_));
  return undefined(fmt::format("{} has no element {}", describe_type(object), shown));
}

Eval<Value> Interpreter::slice(const Value& object, const Value& start, const Value& stop,
                               const Value& step) {
  if (object.is_undefined()) return raise("{}", object.as_undefined()->hint);
  meter_.spend_bytes(size_in_bytes(object));
  const List* items = object.as_list();
  if (items != nullptr && items->kind <= ListKind::kRange) {
    JINJA_TRY(const SliceBounds bounds,
              slice_bounds(start, stop, step, static_cast<int64_t>(items->items.size())));
    std::vector<Value> taken;
    taken.reserve(static_cast<size_t>(bounds.n));
    for (int64_t i = 0; i < bounds.n; ++i) {
      taken.push_back(items->items[static_cast<size_t>(bounds.start + i * bounds.step)]);
    }
    return list(std::move(taken), items->kind);
  }
  if (!object.is_string())
    return undefined(fmt::format("{} can't be sliced", describe_type(object)));
  const std::string& text = object.text();
  JINJA_TRY(const SliceBounds bounds,
            slice_bounds(start, stop, step, static_cast<int64_t>(count_points(text))));
  if (bounds.n == 0) return string("");
  if (bounds.step == 1) {
    const size_t begin = byte_offset(text, static_cast<size_t>(bounds.start));
    const std::string_view rest = std::string_view(text).substr(begin);
    return string(std::string(rest.substr(0, byte_offset(rest, static_cast<size_t>(bounds.n)))));
  }
  JINJA_CHECK(check_size(text.size(), sizeof(std::string_view)));
  const std::vector<std::string_view> points = split_points(text);
  std::string taken;
  for (int64_t i = 0; i < bounds.n; ++i)
    taken += points[static_cast<size_t>(bounds.start + i * bounds.step)];
  return string(std::move(taken));
}

Eval<std::vector<Value>> Interpreter::iterate(const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  meter_.spend_bytes(size_in_bytes(value));
  if (List* list = value.as_list()) {
    JINJA_CHECK(check_size(list->items.size(), sizeof(Value)));
    return list->take();
  }
  if (const Dict* dict = value.as_dict()) {
    items.reserve(dict->entries.size());
    for (const auto& entry : dict->entries) items.push_back(entry.first);
    return items;
  }
  if (value.is_string()) {
    JINJA_CHECK(check_size(value.text().size(), sizeof(Value) + sizeof(String)));
    for (const std::string_view point : split_points(value.text()))
      items.push_back(string(std::string(point)));
    JINJA_CHECK(spend(static_cast<int64_t>(items.size() / 4)));
    return items;
  }
  return raise("'{}' object is not iterable", type_name(value));
}

Eval<Value> Interpreter::call(const Value& callee, CallArgs& args) {
  if (callee.is_undefined()) return raise("{}", callee.as_undefined()->hint);
  Object* object = callee.as_object();
  if (object == nullptr || !object->callable())
    return raise("'{}' object is not callable", type_name(callee));
  JINJA_CHECK(spend(1));
  JINJA_TRY(Value result, object->call(*this, args));
  JINJA_CHECK(spend(0));
  return result;
}

Eval<Value> Interpreter::call_method(const Value& object, std::string_view name, CallArgs& args) {
  const MethodFunction method =
      object.is_undefined() || is_mutator(object, name) ? nullptr : find_method(object, name);
  if (method == nullptr) {
    JINJA_TRY(const Value callee, attribute(object, name));
    return call(callee, args);
  }
  meter_.spend_bytes(size_in_bytes(object));
  JINJA_TRY(Value result, method(*this, object, args));
  JINJA_CHECK(spend(1));
  return result;
}

}  // namespace baton::jinja
