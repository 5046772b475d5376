#include "jinja/arguments.h"

#include <algorithm>

namespace baton::jinja {

Eval<int64_t> BoundArgs::integer(size_t i, int64_t otherwise) const {
  if (!given(i)) return otherwise;
  if (values_[i]->is_undefined()) return raise("{}", values_[i]->as_undefined()->hint);
  if (!values_[i]->is_integral()) {
    return raise("'{}' object cannot be interpreted as an integer", type_name(*values_[i]));
  }
  return values_[i]->integer();
}

Eval<std::string_view> BoundArgs::text(size_t i, std::string_view otherwise) const {
  if (!given(i)) return otherwise;
  if (values_[i]->is_undefined()) return raise("{}", values_[i]->as_undefined()->hint);
  if (!values_[i]->is_string())
    return raise("a string is expected, not '{}'", type_name(*values_[i]));
  return std::string_view(values_[i]->text());
}

Eval<BoundArgs> bind(std::string_view function, const CallArgs& args,
                     std::initializer_list<std::string_view> names, size_t n_required) {
  BoundArgs bound;
  if (args.positional.size() > names.size()) {
    return raise("{}() takes at most {} arguments ({} given)", function, names.size(),
                 args.positional.size());
  }
  for (size_t i = 0; i < args.positional.size(); ++i) bound.set(i, &args.positional[i]);
  for (const auto& [name, value] : args.named) {
    const auto* const parameter = std::find(names.begin(), names.end(), name);
    if (parameter == names.end()) {
      return raise("{}() got an unexpected keyword argument '{}'", function, name);
    }
    const auto i = static_cast<size_t>(parameter - names.begin());
    if (bound[i] != nullptr) return raise("{}() got two values for argument '{}'", function, name);
    bound.set(i, &value);
  }
  for (size_t i = 0; i < n_required; ++i) {
    if (bound[i] == nullptr) {
      return raise("{}() is missing argument '{}'", function, *(names.begin() + i));
    }
  }
  return bound;
}

}  // namespace baton::jinja
