// The public face of src/jinja: a parsed template that renders with variables.
//
// A real Jinja interpreter as chat templates need it: the language of jinja2 3.1 under the settings
// of Hugging Face transformers (trim_blocks, lstrip_blocks, loop controls, `generation` blocks, the
// immutable sandbox, no autoescape), Python's printing and str methods, integers of 64 bit. Both
// the source and the variables may be hostile: see Limits.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "jinja/value.h"

namespace baton::jinja {

struct Ast;

/// A later one of the same name wins.
using Variables = std::vector<std::pair<std::string, Value>>;

struct RenderOptions {
  std::optional<std::tm> now;  ///< what strftime_now() reads; absent: the local time
};

/// A parsed template; copies share the parsed form. Immutable: any number of threads may render at
/// once.
class Template {
 public:
  /// kInvalidArgument: "chat template, line N: …" for a syntax error, a source that is too long or
  /// not UTF-8.
  [[nodiscard]] static Result<Template> parse(std::string_view source, const Limits& limits = {});

  /// kInvalidArgument: the exact message of raise_exception(), else "chat template, line N: …".
  [[nodiscard]] Result<std::string> render(const Variables& variables,
                                           const RenderOptions& options = {}) const;

 private:
  Template(std::shared_ptr<const Ast> ast, const Limits& limits);
  std::shared_ptr<const Ast> ast_;
  Limits limits_;
};

}  // namespace baton::jinja
