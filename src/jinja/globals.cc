// The global functions of Jinja and of transformers.
#include <ctime>

#include "jinja/arguments.h"
#include "jinja/objects.h"
#include "jinja/print.h"
#include "jinja/registry.h"
#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // MAX_RANGE of jinja2's sandbox

Eval<Value> range(Interpreter& interpreter, CallArgs& args) {
  if (!args.named.empty()) return raise("range() takes no keyword arguments");
  if (args.positional.empty() || args.positional.size() > 3) {
    return raise("range() takes 1 to 3 arguments ({} given)", args.positional.size());
  }
  int64_t values[3] = {0, 0, 1};
  for (size_t i = 0; i < args.positional.size(); ++i) {
    const Value& value = args.positional[i];
    if (value.is_undefined()) return raise("{}", value.as_undefined()->hint);
    if (!value.is_integral())
      return raise("'{}' object cannot be interpreted as an integer", type_name(value));
    values[i] = value.integer();
  }
  if (args.positional.size() == 1) std::swap(values[0], values[1]);
  const auto [start, stop, step] = std::tie(values[0], values[1], values[2]);
  if (step == 0) return raise("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      return raise("range too big, the sandbox blocks ranges larger than {}", kMaxRange);
    }
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  JINJA_CHECK(interpreter.spend(static_cast<int64_t>(items.size() / 8)));
  return interpreter.list(std::move(items), ListKind::kRange);
}

/// Entries of a mapping or of an iterable of pairs.
Eval<std::vector<std::pair<Value, Value>>> pairs_of(Interpreter& interpreter, const Value& value) {
  if (const Dict* dict = value.as_dict()) return dict->entries;
  std::vector<std::pair<Value, Value>> pairs;
  JINJA_TRY(const std::vector<Value> items, interpreter.iterate(value));
  for (const Value& item : items) {
    JINJA_TRY(std::vector<Value> pair, interpreter.iterate(item));
    if (pair.size() != 2)
      return raise("an element of length {} is not a key and a value", pair.size());
    if (!is_hashable(pair[0])) return raise("unhashable type: '{}'", type_name(pair[0]));
    pairs.emplace_back(std::move(pair[0]), std::move(pair[1]));
  }
  return pairs;
}

Eval<std::shared_ptr<Dict>> dict_of(Interpreter& interpreter, std::string_view function,
                                    CallArgs& args) {
  if (args.positional.size() > 1) {
    return raise("{} expected at most 1 argument, got {}", function, args.positional.size());
  }
  auto dict = std::make_shared<Dict>(&interpreter.meter());
  if (!args.positional.empty()) {
    JINJA_TRY(auto pairs, pairs_of(interpreter, args.positional[0]));
    for (auto& [key, value] : pairs) dict->set(std::move(key), std::move(value));
  }
  for (auto& [name, value] : args.named) dict->set(interpreter.string(name), std::move(value));
  return dict;
}

Eval<Value> dict(Interpreter& interpreter, CallArgs& args) {
  JINJA_TRY(auto made, dict_of(interpreter, "dict", args));
  return Value(std::move(made));
}

Eval<Value> make_namespace(Interpreter& interpreter, CallArgs& args) {
  JINJA_TRY(const auto values, dict_of(interpreter, "namespace", args));
  auto space = std::make_shared<Namespace>(&interpreter.meter());
  for (const auto& [key, value] : values->entries) {
    JINJA_TRY(const std::string name, interpreter.text(key));
    space->set(name, value);
  }
  interpreter.adopt(space);
  return Value(std::shared_ptr<Object>(std::move(space)));
}

Eval<Value> raise_exception(Interpreter& interpreter, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("raise_exception", args, {"message"}, 1));
  JINJA_TRY(std::string message, interpreter.text(*bound[0]));
  return tl::unexpected(Failure{std::move(message), 0, true});
}

Eval<Value> strftime_now(Interpreter& interpreter, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("strftime_now", args, {"format"}, 1));
  JINJA_TRY(const std::string_view format, bound.text(0, ""));
  std::tm now{};
  if (interpreter.options().now) {
    now = *interpreter.options().now;
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &now);
  }
  if (format.empty()) return interpreter.string("");
  // The buffer bounds what a format like "%999999999d" can cost.
  char buffer[4096];
  const size_t n = format.size() < sizeof buffer
                       ? std::strftime(buffer, sizeof buffer, std::string(format).c_str(), &now)
                       : 0;
  if (n == 0) return raise("strftime_now() result is longer than {} bytes", sizeof buffer - 1);
  std::string text(buffer, n);
  if (!is_valid_utf8(text)) return raise("strftime_now() result is not valid UTF-8");
  return interpreter.string(std::move(text));
}

Eval<Value> cycler(Interpreter& interpreter, CallArgs& args) {
  if (args.positional.empty() || !args.named.empty())
    return raise("cycler() needs at least one positional argument");
  Value items = interpreter.list(std::move(args.positional));
  return Value(
      std::shared_ptr<Object>(std::make_shared<Cycler>(&interpreter.meter(), std::move(items))));
}

Eval<Value> joiner(Interpreter& interpreter, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("joiner", args, {"sep"}));
  JINJA_TRY(std::string separator,
            bound[0] != nullptr ? interpreter.text(*bound[0]) : Eval<std::string>(", "));
  Value text = interpreter.string(std::move(separator));
  return Value(
      std::shared_ptr<Object>(std::make_shared<Joiner>(&interpreter.meter(), std::move(text))));
}

constexpr std::pair<std::string_view, NativeFunction> kGlobals[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"cycler", cycler},
    {"joiner", joiner},
};

}  // namespace

std::optional<Value> find_global(Meter& meter, std::string_view name) {
  for (const auto& [global, function] : kGlobals) {
    if (global == name)
      return Value(std::shared_ptr<Object>(std::make_shared<Function>(&meter, function)));
  }
  return std::nullopt;
}

}  // namespace baton::jinja
