// Values of the template language: Python's None, bool, int (64 bit), float, str, list, tuple,
// dict, and the objects of Jinja (undefined, namespace, macros, loop). Immutable but for namespaces
// and loops, so values are shared, not copied. Everything made while rendering is counted by the
// Meter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/failure.h"
#include "jinja/limits.h"

namespace baton::jinja {

class Interpreter;
struct CallArgs;
struct Undefined;
struct String;
struct List;
struct Dict;
struct Object;

/// Which Python type a sequence is; it decides how it prints and what may be done with it. Those up
/// to kRange have a length and can be indexed. kGroup is the named tuple (grouper, list) of
/// groupby.
enum class ListKind : uint8_t { kList, kTuple, kGroup, kRange, kGenerator, kKeys, kValues, kItems };

using None = std::monostate;

/// Any value; copies share what is on the heap. Thread-compatible; what has no meter (constants,
/// variables) never changes and may be read by many threads.
class Value {
 public:
  using Data = std::variant<None, bool, int64_t, double, std::shared_ptr<const Undefined>,
                            std::shared_ptr<const String>, std::shared_ptr<List>,
                            std::shared_ptr<Dict>, std::shared_ptr<Object>>;

  /// None. Not inline: g++ 12 takes the other alternatives of a known None for uninitialised.
  Value();
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(std::shared_ptr<const Undefined> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<const String> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<List> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<Dict> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<Object> value) : data_(std::move(value)) {}

  [[nodiscard]] bool is_none() const { return std::holds_alternative<None>(data_); }
  [[nodiscard]] bool is_undefined() const { return data_.index() == 4; }
  [[nodiscard]] bool is_string() const { return data_.index() == 5; }
  [[nodiscard]] bool is_number() const { return data_.index() >= 1 && data_.index() <= 3; }
  /// int or bool, as isinstance(x, int).
  [[nodiscard]] bool is_integral() const { return data_.index() == 1 || data_.index() == 2; }
  [[nodiscard]] const bool* as_bool() const { return std::get_if<bool>(&data_); }
  [[nodiscard]] const int64_t* as_int() const { return std::get_if<int64_t>(&data_); }
  [[nodiscard]] const double* as_float() const { return std::get_if<double>(&data_); }
  [[nodiscard]] const Undefined* as_undefined() const { return pointer<const Undefined>(); }
  [[nodiscard]] const String* as_string() const { return pointer<const String>(); }
  [[nodiscard]] List* as_list() const { return pointer<List>(); }
  [[nodiscard]] Dict* as_dict() const { return pointer<Dict>(); }
  [[nodiscard]] Object* as_object() const { return pointer<Object>(); }
  /// The text of a string; only if is_string().
  [[nodiscard]] const std::string& text() const;
  /// The value of an int or bool; only if is_integral().
  [[nodiscard]] int64_t integer() const { return as_bool() != nullptr ? *as_bool() : *as_int(); }
  /// The value of any number; only if is_number().
  [[nodiscard]] double number() const {
    return as_float() != nullptr ? *as_float() : static_cast<double>(integer());
  }
  [[nodiscard]] bool is_list(ListKind kind) const;
  [[nodiscard]] const Data& data() const { return data_; }

 private:
  template <typename T>
  [[nodiscard]] T* pointer() const {
    const auto* held = std::get_if<std::shared_ptr<T>>(&data_);
    return held != nullptr ? held->get() : nullptr;
  }
  Data data_;
};

/// Base of everything on the heap: gives its bytes back to the Meter at its end. Data that outlives
/// a rendering (constants of the source, variables) has no meter.
class Counted {
 public:
  Counted(Meter* meter, size_t bytes) : meter_(meter), bytes_(bytes) {
    if (meter_ != nullptr) meter_->add(bytes_);
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() {
    if (meter_ != nullptr) meter_->release(bytes_);
  }
  [[nodiscard]] Meter* meter() const { return meter_; }

 protected:
  void grow(size_t bytes) {
    bytes_ += bytes;
    if (meter_ != nullptr) meter_->add(bytes);
  }

 private:
  Meter* meter_;
  size_t bytes_;
};

struct Undefined : Counted {
  Undefined(Meter* meter, std::string message)
      : Counted(meter, 96 + message.size()), hint(std::move(message)) {}
  const std::string hint;  ///< the error if it is used, e.g. "'x' is undefined"
};

struct String : Counted {
  String(Meter* meter, std::string bytes, bool is_markup)
      : Counted(meter, 64 + bytes.size()), text(std::move(bytes)), markup(is_markup) {}
  const std::string text;  ///< valid UTF-8
  const bool markup;       ///< the result of |safe or |escape
};

struct List : Counted {
  List(Meter* meter, std::vector<Value> values, ListKind list_kind);
  std::vector<Value> items;
  const ListKind kind;
  uint16_t depth = 1;  ///< of nesting
  /// A generator is emptied by the first who reads it.
  [[nodiscard]] std::vector<Value> take();
};

/// Insertion-ordered; keys are scalars or tuples. Filled once, before it is shared.
struct Dict : Counted {
  explicit Dict(Meter* meter) : Counted(meter, 128) {}
  std::vector<std::pair<Value, Value>> entries;
  uint16_t depth = 1;
  [[nodiscard]] const Value* find(const Value& key) const;
  [[nodiscard]] const Value* find(std::string_view key) const;
  /// Sets or replaces (a replaced key keeps its place).
  void set(Value key, Value value);

 private:
  [[nodiscard]] size_t position(const Value& key, size_t hash) const;
  std::unordered_multimap<size_t, size_t> index_;  ///< hash → entry, once there are many entries
};

/// A namespace, a function, a macro, the loop variable: things with attributes or that can be
/// called.
struct Object : Counted, std::enable_shared_from_this<Object> {
  explicit Object(Meter* meter) : Counted(meter, 256) {}
  virtual ~Object() = default;
  [[nodiscard]] virtual std::string_view type_name() const = 0;
  uint16_t depth =
      0;  ///< of the values it holds for good (those of namespaces and macros don't count)
  /// How it prints.
  [[nodiscard]] virtual std::string describe() const;
  /// Null if there is no such attribute.
  [[nodiscard]] virtual Eval<std::unique_ptr<Value>> attribute(Interpreter& interpreter,
                                                               std::string_view name);
  [[nodiscard]] virtual bool callable() const { return false; }
  [[nodiscard]] virtual Eval<Value> call(Interpreter& interpreter, CallArgs& args);
};

inline const std::string& Value::text() const { return as_string()->text; }
inline bool Value::is_list(ListKind kind) const {
  return as_list() != nullptr && as_list()->kind == kind;
}

/// Arguments of a call, filter or test.
struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

[[nodiscard]] Value make_string(Meter* meter, std::string text, bool markup = false);
[[nodiscard]] Value make_list(Meter* meter, std::vector<Value> items,
                              ListKind kind = ListKind::kList);
[[nodiscard]] Value make_undefined(Meter* meter, std::string hint);

/// "str", "list", "NoneType": Python's name of the type.
[[nodiscard]] std::string_view type_name(const Value& value);
[[nodiscard]] bool truthy(const Value& value);
/// Python's ==. Counts its work; after an overrun of `meter` (may be null) the answer means
/// nothing.
[[nodiscard]] bool equals(const Value& left, const Value& right, Meter* meter);
/// Python's <; fails for types that have no order.
[[nodiscard]] Eval<bool> less_than(const Value& left, const Value& right, Meter* meter,
                                   std::string_view op = "<");
/// Whether it can be a key of a dict.
[[nodiscard]] bool is_hashable(const Value& value);
[[nodiscard]] size_t hash_value(const Value& value);
/// Levels of nesting: 0 for scalars. Bounded by Limits::max_nesting, so recursion over values is
/// too.
[[nodiscard]] int depth_of(const Value& value);
/// The depth of a thing that holds a value of depth_of `inner`; too much of it stops the rendering.
[[nodiscard]] uint16_t depth_around(int inner, Meter* meter);
/// Size of what an operation on it may read, for Meter::spend_bytes.
[[nodiscard]] size_t size_in_bytes(const Value& value);

}  // namespace baton::jinja
