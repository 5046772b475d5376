#include "jinja/template.h"

#include "jinja/interpreter.h"
#include "jinja/parser.h"
#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

tl::unexpected<Error> to_error(const Failure& failure) {
  if (failure.raised) return fail(ErrorCode::kInvalidArgument, "{}", failure.message);
  return fail(ErrorCode::kInvalidArgument, "chat template, line {}: {}", failure.line,
              failure.message);
}

}  // namespace

Template::Template(std::shared_ptr<const Ast> ast, const Limits& limits)
    : ast_(std::move(ast)), limits_(limits) {}

Result<Template> Template::parse(std::string_view source, const Limits& limits) {
  if (source.size() > limits.max_source_bytes) {
    return fail(ErrorCode::kInvalidArgument, "template of {} bytes is longer than the limit of {}",
                source.size(), limits.max_source_bytes);
  }
  if (!is_valid_utf8(source))
    return fail(ErrorCode::kInvalidArgument, "template is not valid UTF-8");
  auto ast = jinja::parse(source, limits);
  if (!ast) return to_error(ast.error());
  return Template(std::move(*ast), limits);
}

Result<std::string> Template::render(const Variables& variables,
                                     const RenderOptions& options) const {
  auto text = Interpreter(*ast_, limits_, options).run(variables);
  if (!text) return to_error(text.error());
  return std::move(*text);
}

}  // namespace baton::jinja
