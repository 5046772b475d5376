// Binding the arguments of native functions, filters, tests and methods. Internal to src/jinja.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include "jinja/value.h"

namespace baton::jinja {

/// Arguments by position; null = not given.
class BoundArgs {
 public:
  static constexpr size_t kMax = 6;
  [[nodiscard]] const Value* operator[](size_t i) const { return values_[i]; }
  void set(size_t i, const Value* value) { values_[i] = value; }
  /// Not given and None are the same for most parameters.
  [[nodiscard]] bool given(size_t i) const {
    return values_[i] != nullptr && !values_[i]->is_none();
  }
  [[nodiscard]] bool flag(size_t i, bool otherwise = false) const {
    return values_[i] != nullptr ? truthy(*values_[i]) : otherwise;
  }
  /// An integer, or `otherwise` if it is not given or None.
  [[nodiscard]] Eval<int64_t> integer(size_t i, int64_t otherwise) const;
  /// A string, or `otherwise` if it is not given or None.
  [[nodiscard]] Eval<std::string_view> text(size_t i, std::string_view otherwise) const;

 private:
  std::array<const Value*, kMax> values_{};
};

/// Binds `args` (which must outlive the result) to parameters `names` (at most BoundArgs::kMax),
/// the first `n_required` of which must be given. `function` names the callee in errors.
[[nodiscard]] Eval<BoundArgs> bind(std::string_view function, const CallArgs& args,
                                   std::initializer_list<std::string_view> names,
                                   size_t n_required = 0);

}  // namespace baton::jinja
