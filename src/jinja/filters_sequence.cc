// Filters on sequences and mappings.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "jinja/filters.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

Eval<Value> length(Interpreter&, const Value& input, CallArgs& args) {
  JINJA_CHECK(bind("length", args, {}));
  if (input.is_undefined()) return Value(int64_t{0});
  if (input.is_string()) return Value(static_cast<int64_t>(count_points(input.text())));
  if (const Dict* dict = input.as_dict()) return Value(static_cast<int64_t>(dict->entries.size()));
  const List* list = input.as_list();
  if (list != nullptr && list->kind != ListKind::kGenerator)
    return Value(static_cast<int64_t>(list->items.size()));
  return raise("object of type '{}' has no len()", type_name(input));
}

Eval<Value> to_list(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_CHECK(bind("list", args, {}));
  JINJA_TRY(std::vector<Value> items, interpreter.iterate(input));
  return interpreter.list(std::move(items));
}

Eval<Value> items(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_CHECK(bind("items", args, {}));
  std::vector<Value> pairs;
  if (!input.is_undefined()) {
    const Dict* dict = input.as_dict();
    if (dict == nullptr) return raise("Can only get item pairs from a mapping.");
    for (const auto& [key, value] : dict->entries)
      pairs.push_back(interpreter.list({key, value}, ListKind::kTuple));
  }
  return interpreter.list(std::move(pairs), ListKind::kGenerator);
}

Eval<Value> first(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_CHECK(bind("first", args, {}));
  JINJA_TRY(std::vector<Value> values, interpreter.iterate(input));
  if (values.empty()) return interpreter.undefined("No first item, sequence was empty.");
  return values.front();
}

Eval<Value> last(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_CHECK(bind("last", args, {}));
  if (input.is_list(ListKind::kGenerator)) return raise("'generator' object is not reversible");
  JINJA_TRY(std::vector<Value> values, interpreter.iterate(input));
  if (values.empty()) return interpreter.undefined("No last item, sequence was empty.");
  return values.back();
}

Eval<Value> reverse(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_CHECK(bind("reverse", args, {}));
  if (input.is_string()) return interpreter.slice(input, Value(), Value(), Value(int64_t{-1}));
  JINJA_TRY(std::vector<Value> values, interpreter.iterate(input));
  std::reverse(values.begin(), values.end());
  return interpreter.list(std::move(values), ListKind::kGenerator);
}

Eval<Value> join(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("join", args, {"d", "attribute"}));
  JINJA_TRY(const std::string separator,
            bound[0] != nullptr ? interpreter.text(*bound[0]) : Eval<std::string>(""));
  JINJA_TRY(const std::vector<Value> values, interpreter.iterate(input));
  std::string joined;
  for (size_t i = 0; i < values.size(); ++i) {
    JINJA_TRY(const Value value, attribute_path(interpreter, values[i], bound[1]));
    JINJA_TRY(const std::string part, interpreter.text(value));
    JINJA_CHECK(interpreter.check_size(joined.size() + separator.size() + part.size(), 1));
    if (i > 0) joined += separator;
    joined += part;
  }
  return interpreter.string(std::move(joined));
}

/// Sorts by `keys` (one for each value), stable.
struct Sorted {
  std::vector<Value> values;
  std::vector<Value> keys;
};
Eval<Sorted> sort_by_keys(Interpreter& interpreter, std::vector<Value> values,
                          std::vector<Value> keys, bool descending) {
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::optional<Failure> failure;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (failure || interpreter.meter().overrun()) return false;
    auto less = descending ? less_than(keys[b], keys[a], &interpreter.meter())
                           : less_than(keys[a], keys[b], &interpreter.meter());
    if (!less) failure = std::move(less.error());
    return less && *less;
  });
  if (failure) return tl::unexpected(std::move(*failure));
  JINJA_CHECK(interpreter.spend(0));
  Sorted sorted;
  for (const size_t i : order) {
    sorted.values.push_back(std::move(values[i]));
    sorted.keys.push_back(std::move(keys[i]));
  }
  return sorted;
}

Eval<Value> sort(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("sort", args, {"reverse", "case_sensitive", "attribute"}));
  JINJA_TRY(std::vector<Value> values, interpreter.iterate(input));
  std::vector<Value> paths;
  if (bound.given(2) && bound[2]->is_string()) {
    // "a,b" sorts by a, then by b.
    std::string_view rest = bound[2]->text();
    while (true) {
      const size_t comma = rest.find(',');
      paths.push_back(interpreter.string(std::string(rest.substr(0, comma))));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.push_back(bound.given(2) ? *bound[2] : Value());
  }
  std::vector<Value> keys;
  for (const Value& value : values) {
    std::vector<Value> key;
    for (const Value& path : paths) {
      JINJA_TRY(const Value part, attribute_path(interpreter, value, &path));
      key.push_back(bound.flag(1) ? part : ignore_case(interpreter, part));
    }
    keys.push_back(interpreter.list(std::move(key)));
    JINJA_CHECK(interpreter.spend(1));
  }
  JINJA_TRY(Sorted sorted,
            sort_by_keys(interpreter, std::move(values), std::move(keys), bound.flag(0)));
  return interpreter.list(std::move(sorted.values));
}

Eval<Value> dict_sort(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("dictsort", args, {"case_sensitive", "by", "reverse"}));
  if (input.is_undefined()) return raise("{}", input.as_undefined()->hint);
  const Dict* dict = input.as_dict();
  if (dict == nullptr) return raise("'{} object' has no attribute 'items'", type_name(input));
  JINJA_TRY(const std::string_view by, bound.text(1, "key"));
  if (by != "key" && by != "value")
    return raise("You can only sort by either \"key\" or \"value\"");
  std::vector<Value> values;
  std::vector<Value> keys;
  for (const auto& [key, value] : dict->entries) {
    const Value& chosen = by == "key" ? key : value;
    values.push_back(interpreter.list({key, value}, ListKind::kTuple));
    keys.push_back(bound.flag(0) ? chosen : ignore_case(interpreter, chosen));
  }
  JINJA_TRY(Sorted sorted,
            sort_by_keys(interpreter, std::move(values), std::move(keys), bound.flag(2)));
  return interpreter.list(std::move(sorted.values));
}

Eval<Value> extreme(Interpreter& interpreter, const Value& input, CallArgs& args, bool wants_max) {
  JINJA_TRY(const BoundArgs bound,
            bind(wants_max ? "max" : "min", args, {"case_sensitive", "attribute"}));
  JINJA_TRY(const std::vector<Value> values, interpreter.iterate(input));
  if (values.empty()) return interpreter.undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < values.size(); ++i) {
    JINJA_TRY(Value key, attribute_path(interpreter, values[i], bound[1]));
    if (!bound.flag(0)) key = ignore_case(interpreter, key);
    bool better = i == 0;
    if (i > 0) {
      JINJA_TRY(better, interpreter.compare(wants_max ? Op::kGreater : Op::kLess, key, best_key));
    }
    if (!better) continue;
    best = i;
    best_key = std::move(key);
  }
  return values[best];
}

Eval<Value> min(Interpreter& interpreter, const Value& input, CallArgs& args) {
  return extreme(interpreter, input, args, false);
}
Eval<Value> max(Interpreter& interpreter, const Value& input, CallArgs& args) {
  return extreme(interpreter, input, args, true);
}

Eval<Value> sum(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("sum", args, {"attribute", "start"}));
  JINJA_TRY(const std::vector<Value> values, interpreter.iterate(input));
  Value total = bound[1] != nullptr ? *bound[1] : Value(int64_t{0});
  if (total.is_string()) return raise("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& value : values) {
    JINJA_TRY(const Value part, attribute_path(interpreter, value, bound[0]));
    JINJA_TRY(total, interpreter.binary(Op::kAdd, total, part));
    JINJA_CHECK(interpreter.spend(1));
  }
  return total;
}

Eval<Value> unique(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("unique", args, {"case_sensitive", "attribute"}));
  JINJA_TRY(std::vector<Value> values, interpreter.iterate(input));
  Dict seen(&interpreter.meter());
  std::vector<Value> kept;
  for (Value& value : values) {
    JINJA_TRY(Value key, attribute_path(interpreter, value, bound[1]));
    if (!bound.flag(0)) key = ignore_case(interpreter, key);
    if (!is_hashable(key)) return raise("unhashable type: '{}'", type_name(key));
    if (seen.find(key) != nullptr) continue;
    seen.set(std::move(key), Value());
    kept.push_back(std::move(value));
    JINJA_CHECK(interpreter.spend(1));
  }
  return interpreter.list(std::move(kept), ListKind::kGenerator);
}

Eval<Value> batch(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("batch", args, {"linecount", "fill_with"}, 1));
  JINJA_TRY(const int64_t size, bound.integer(0, 0));
  JINJA_TRY(const std::vector<Value> values, interpreter.iterate(input));
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& value : values) {
    if (static_cast<int64_t>(batch.size()) == size)
      batches.push_back(interpreter.list(std::exchange(batch, {})));
    batch.push_back(value);
  }
  if (!batch.empty()) {
    if (bound.given(1) && static_cast<int64_t>(batch.size()) < size) {
      JINJA_CHECK(interpreter.check_size(static_cast<size_t>(size), sizeof(Value)));
      batch.resize(static_cast<size_t>(size), *bound[1]);
    }
    batches.push_back(interpreter.list(std::move(batch)));
  }
  return interpreter.list(std::move(batches), ListKind::kGenerator);
}

Eval<Value> slice(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("slice", args, {"slices", "fill_with"}, 1));
  JINJA_TRY(const int64_t slices, bound.integer(0, 0));
  JINJA_TRY(const std::vector<Value> values, interpreter.iterate(input));
  if (slices == 0) return raise("integer division or modulo by zero");
  if (slices > 0) JINJA_CHECK(interpreter.check_size(static_cast<size_t>(slices), 256));
  std::vector<Value> parts;
  const auto n = static_cast<size_t>(std::max<int64_t>(slices, 0));
  size_t begin = 0;
  for (size_t i = 0; i < n; ++i) {
    const bool has_extra = i < values.size() % n;
    const size_t size = values.size() / n + (has_extra ? 1 : 0);
    std::vector<Value> part(values.begin() + static_cast<std::ptrdiff_t>(begin),
                            values.begin() + static_cast<std::ptrdiff_t>(begin + size));
    if (bound.given(1) && !has_extra) part.push_back(*bound[1]);
    parts.push_back(interpreter.list(std::move(part)));
    begin += size;
  }
  JINJA_CHECK(interpreter.spend(static_cast<int64_t>(n)));
  return interpreter.list(std::move(parts), ListKind::kGenerator);
}

Eval<Value> group_by(Interpreter& interpreter, const Value& input, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound,
            bind("groupby", args, {"attribute", "default", "case_sensitive"}, 1));
  JINJA_TRY(std::vector<Value> values, interpreter.iterate(input));
  const Value* const otherwise = bound.given(1) ? bound[1] : nullptr;
  std::vector<Value> keys;
  for (const Value& value : values) {
    JINJA_TRY(Value key, attribute_path(interpreter, value, bound[0], otherwise));
    keys.push_back(bound.flag(2) ? key : ignore_case(interpreter, key));
  }
  JINJA_TRY(Sorted sorted, sort_by_keys(interpreter, std::move(values), std::move(keys), false));
  std::vector<Value> groups;
  for (size_t i = 0; i < sorted.values.size();) {
    std::vector<Value> members;
    JINJA_TRY(Value grouper, attribute_path(interpreter, sorted.values[i], bound[0], otherwise));
    const Value key = sorted.keys[i];
    for (; i < sorted.values.size() && equals(sorted.keys[i], key, &interpreter.meter()); ++i) {
      members.push_back(sorted.values[i]);
      JINJA_CHECK(interpreter.spend(1));
    }
    if (members.empty()) ++i;  // NaN equals nothing
    Value list = interpreter.list(std::move(members));
    groups.push_back(interpreter.list({std::move(grouper), std::move(list)}, ListKind::kGroup));
  }
  return interpreter.list(std::move(groups));
}

}  // namespace

Eval<Value> attribute_path(Interpreter& interpreter, const Value& item, const Value* path,
                           const Value* otherwise) {
  if (path == nullptr || path->is_none()) return item;
  if (!path->is_string()) {
    JINJA_TRY(Value value, interpreter.item(item, *path));
    return value.is_undefined() && otherwise != nullptr ? *otherwise : value;
  }
  Value value = item;
  std::string_view rest = path->text();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool is_index = !part.empty() && part.size() < 18 &&
                          part.find_first_not_of("0123456789") == std::string_view::npos;
    const Value key = is_index ? Value(static_cast<int64_t>(std::stoll(std::string(part))))
                               : make_string(nullptr, std::string(part));
    JINJA_TRY(value, interpreter.item(value, key));
    if (value.is_undefined() && otherwise != nullptr) value = *otherwise;
    JINJA_CHECK(interpreter.spend(1));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value ignore_case(Interpreter& interpreter, const Value& value) {
  return value.is_string() ? interpreter.string(to_lower(value.text())) : value;
}

FilterFunction find_sequence_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kFilters = {
      {"length", length},    {"count", length},  {"list", to_list},       {"items", items},
      {"first", first},      {"last", last},     {"reverse", reverse},    {"join", join},
      {"sort", sort},        {"min", min},       {"dictsort", dict_sort}, {"max", max},
      {"sum", sum},          {"unique", unique}, {"batch", batch},        {"slice", slice},
      {"groupby", group_by},
  };
  const auto it = kFilters.find(name);
  return it != kFilters.end() ? it->second : nullptr;
}

}  // namespace baton::jinja
