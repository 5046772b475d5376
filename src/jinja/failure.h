// How evaluation fails: Eval<T>, with the line of the template. Internal to src/jinja.
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace baton::jinja {

struct Failure {
  std::string message;
  int line = 0;         ///< 1-based; 0 = not known yet (the evaluator fills it in)
  bool raised = false;  ///< by raise_exception(): the message is the template author's
};

template <typename T>
using Eval = tl::expected<T, Failure>;

/// `return raise("'{}' is undefined", name);`
template <typename... Args>
[[nodiscard]] tl::unexpected<Failure> raise(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Failure>(
      Failure{fmt::format(format, std::forward<Args>(args)...), 0, false});
}

}  // namespace baton::jinja

#define BATON_JINJA_JOIN_(a, b) a##b
#define BATON_JINJA_JOIN(a, b) BATON_JINJA_JOIN_(a, b)
#define BATON_JINJA_TRY_(result, target, expression)             \
  auto result = (expression);                                    \
  if (!result) return tl::unexpected(std::move(result).error()); \
  target = std::move(*result)
/// `JINJA_TRY(Value left, eval(node));` hands a failure to the caller.
#define JINJA_TRY(target, expression) \
  BATON_JINJA_TRY_(BATON_JINJA_JOIN(result_, __LINE__), target, expression)
/// The same for an expression whose value is not needed.
#define JINJA_CHECK(expression)                                                                   \
  do {                                                                                            \
    if (auto checked = (expression); !checked) return tl::unexpected(std::move(checked).error()); \
  } while (false)
