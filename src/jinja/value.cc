#include "jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

constexpr size_t kBytesPerItem = sizeof(Value);
constexpr size_t kBytesPerEntry = 2 * sizeof(Value) + 48;  // with its place in the index
constexpr size_t kIndexFrom = 9;                           // below, a linear search is faster

bool equal_items(const List& left, const List& right, Meter* meter) {
  if (left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    if (!equals(left.items[i], right.items[i], meter)) return false;
  }
  return true;
}

bool equal_dicts(const Dict& left, const Dict& right, Meter* meter) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    const Value* other = right.find(key);
    if (other == nullptr || !equals(value, *other, meter)) return false;
  }
  return true;
}

bool equal_numbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return left.integer() == right.integer();
  return left.number() == right.number();
}

}  // namespace

List::List(Meter* meter, std::vector<Value> values, ListKind list_kind)
    : Counted(meter, 96 + values.size() * kBytesPerItem),
      items(std::move(values)),
      kind(list_kind) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, depth_of(item));
  depth = depth_around(deepest, meter);
}

std::vector<Value> List::take() {
  if (kind != ListKind::kGenerator) return items;
  return std::exchange(items, {});
}

size_t Dict::position(const Value& key, size_t hash) const {
  if (index_.empty()) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (equals(entries[i].first, key, meter())) return i;
    }
    return entries.size();
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (equals(entries[it->second].first, key, meter())) return it->second;
  }
  return entries.size();
}

const Value* Dict::find(const Value& key) const {
  if (!is_hashable(key)) return nullptr;
  const size_t at = position(key, index_.empty() ? 0 : hash_value(key));
  return at < entries.size() ? &entries[at].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto is_key = [&](const Value& other) { return other.is_string() && other.text() == key; };
  if (index_.empty()) {
    for (const auto& [name, value] : entries) {
      if (is_key(name)) return &value;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>{}(key));
  for (auto it = begin; it != end; ++it) {
    if (is_key(entries[it->second].first)) return &entries[it->second].second;
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  depth = std::max(depth, depth_around(std::max(depth_of(key), depth_of(value)), meter()));
  const size_t hash = hash_value(key);
  const size_t at = position(key, hash);
  if (at < entries.size()) {
    entries[at].second = std::move(value);
    return;
  }
  grow(kBytesPerEntry);
  entries.emplace_back(std::move(key), std::move(value));
  if (!index_.empty()) {
    index_.emplace(hash, at);
  } else if (entries.size() >= kIndexFrom) {
    for (size_t i = 0; i < entries.size(); ++i) index_.emplace(hash_value(entries[i].first), i);
  }
}

Value::Value() = default;

std::string Object::describe() const { return fmt::format("<{}>", type_name()); }

Eval<std::unique_ptr<Value>> Object::attribute(Interpreter&, std::string_view) { return nullptr; }

Eval<Value> Object::call(Interpreter&, CallArgs&) {
  return raise("'{}' object is not callable", type_name());
}

Value make_string(Meter* meter, std::string text, bool markup) {
  return Value(std::make_shared<const String>(meter, std::move(text), markup));
}

Value make_list(Meter* meter, std::vector<Value> items, ListKind kind) {
  return Value(std::make_shared<List>(meter, std::move(items), kind));
}

Value make_undefined(Meter* meter, std::string hint) {
  return Value(std::make_shared<const Undefined>(meter, std::move(hint)));
}

std::string_view type_name(const Value& value) {
  switch (value.data().index()) {
    case 0:
      return "NoneType";
    case 1:
      return "bool";
    case 2:
      return "int";
    case 3:
      return "float";
    case 4:
      return "Undefined";
    case 5:
      return value.as_string()->markup ? "Markup" : "str";
    case 7:
      return "dict";
    case 8:
      return value.as_object()->type_name();
    default:
      break;
  }
  switch (value.as_list()->kind) {
    case ListKind::kList:
      return "list";
    case ListKind::kTuple:
    case ListKind::kGroup:
      return "tuple";
    case ListKind::kRange:
      return "range";
    case ListKind::kGenerator:
      return "generator";
    case ListKind::kKeys:
      return "dict_keys";
    case ListKind::kValues:
      return "dict_values";
    case ListKind::kItems:
      return "dict_items";
  }
  return "list";
}

bool truthy(const Value& value) {
  switch (value.data().index()) {
    case 0:
      return false;
    case 1:
      return *value.as_bool();
    case 2:
      return *value.as_int() != 0;
    case 3:
      return *value.as_float() != 0;
    case 4:
      return false;
    case 5:
      return !value.text().empty();
    case 6:
      return value.as_list()->kind == ListKind::kGenerator || !value.as_list()->items.empty();
    case 7:
      return !value.as_dict()->entries.empty();
    default:
      return true;
  }
}

bool equals(const Value& left, const Value& right, Meter* meter) {
  if (meter != nullptr) {
    meter->spend(1);
    if (meter->overrun()) return false;
  }
  if (left.is_number() && right.is_number()) return equal_numbers(left, right);
  if (left.data().index() != right.data().index()) return false;
  switch (left.data().index()) {
    case 0:
      return true;
    case 4:
      return true;
    case 5:
      return left.text() == right.text();
    case 6: {
      const List& a = *left.as_list();
      const List& b = *right.as_list();
      if (&a == &b) return true;
      if (a.kind != b.kind || a.kind == ListKind::kGenerator || a.kind == ListKind::kValues) {
        return false;
      }
      return equal_items(a, b, meter);
    }
    case 7:
      return left.as_dict() == right.as_dict() ||
             equal_dicts(*left.as_dict(), *right.as_dict(), meter);
    default:
      return left.as_object() == right.as_object();
  }
}

Eval<bool> less_than(const Value& left, const Value& right, Meter* meter, std::string_view op) {
  if (meter != nullptr) {
    meter->spend(1);
    if (meter->overrun()) return false;
  }
  for (const Value* side : {&left, &right}) {
    if (side->is_undefined()) return raise("{}", side->as_undefined()->hint);
  }
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) return left.integer() < right.integer();
    return left.number() < right.number();
  }
  // The order of UTF-8 bytes is the order of code points.
  if (left.is_string() && right.is_string()) return left.text() < right.text();
  const List* a = left.as_list();
  const List* b = right.as_list();
  if (a != nullptr && b != nullptr && a->kind == b->kind &&
      (a->kind == ListKind::kList || a->kind == ListKind::kTuple)) {
    for (size_t i = 0; i < std::min(a->items.size(), b->items.size()); ++i) {
      if (!equals(a->items[i], b->items[i], meter)) {
        return less_than(a->items[i], b->items[i], meter, op);
      }
    }
    return a->items.size() < b->items.size();
  }
  return raise("'{}' not supported between instances of '{}' and '{}'", op, type_name(left),
               type_name(right));
}

bool is_hashable(const Value& value) {
  if (value.as_dict() != nullptr) return false;
  const List* list = value.as_list();
  if (list == nullptr) return true;
  if (list->kind != ListKind::kTuple) return list->kind == ListKind::kGenerator;
  // Tuples nest at most as deep as values may; shared parts are looked at once each only because
  // a tuple holds few: the size check keeps this linear.
  for (const Value& item : list->items) {
    if (item.as_dict() != nullptr) return false;
    if (item.as_list() != nullptr && item.as_list()->kind == ListKind::kList) return false;
  }
  return true;
}

size_t hash_value(const Value& value) {
  if (value.is_string()) return std::hash<std::string_view>{}(value.text());
  if (value.is_integral()) return std::hash<int64_t>{}(value.integer());
  if (const double* number = value.as_float()) {
    const bool integral = std::abs(*number) < 9e18 && *number == std::floor(*number);
    return integral ? std::hash<int64_t>{}(static_cast<int64_t>(*number))
                    : std::hash<double>{}(*number);
  }
  if (const List* list = value.as_list()) {
    // Only the scalars directly in it: shared sub-tuples could make a full walk exponential.
    size_t hash = list->items.size();
    for (const Value& item : list->items) {
      hash = hash * 31 + (item.as_list() == nullptr ? hash_value(item) : 7);
    }
    return hash;
  }
  if (const Object* object = value.as_object()) return std::hash<const void*>{}(object);
  return value.data().index();
}

int depth_of(const Value& value) {
  if (const List* list = value.as_list()) return list->depth;
  if (const Dict* dict = value.as_dict()) return dict->depth;
  if (const Object* object = value.as_object()) return object->depth;
  return 0;
}

uint16_t depth_around(int inner, Meter* meter) {
  // Without a meter the parser or the JSON reader has checked.
  if (meter != nullptr && inner + 1 > meter->limits().max_nesting) meter->mark_too_deep();
  return static_cast<uint16_t>(std::min(inner + 1, 0xFFFF));
}

size_t size_in_bytes(const Value& value) {
  if (value.is_string()) return value.text().size();
  if (const List* list = value.as_list()) return list->items.size() * 8;
  if (const Dict* dict = value.as_dict()) return dict->entries.size() * 8;
  return 0;
}

}  // namespace baton::jinja
