// Template source → tokens, with white-space control as Jinja does it under trim_blocks and
// lstrip_blocks, one trailing newline of the source dropped. Internal to src/jinja.
//
// Source of the rules: jinja2/lexer.py (3.1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/failure.h"

namespace baton::jinja {

enum class TokenKind : uint8_t {
  kData,           ///< text outside of tags
  kVariableBegin,  ///< {{
  kVariableEnd,    ///< }}
  kBlockBegin,     ///< {%
  kBlockEnd,       ///< %}
  kName,
  kString,   ///< text = decoded value
  kInteger,  ///< integer
  kFloat,    ///< real
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;
  int64_t integer = 0;
  double real = 0;
};

/// `source` is valid UTF-8. The last token is kEnd.
[[nodiscard]] Eval<std::vector<Token>> tokenize(std::string_view source);

}  // namespace baton::jinja
