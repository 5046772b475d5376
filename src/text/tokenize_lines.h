// The work of `baton tokenize`: JSON lines in, JSON lines out.
#pragma once

#include <iosfwd>

#include "text/tokenizer.h"

namespace baton::text {

enum class LinesMode { kEncode, kDecode };

/// Answers each line of `in` with one line on `out`, in order, until the end of `in`.
///
/// kEncode: {"text", "add_special_tokens": true, "parse_special": true} → {"ids"}.
/// kDecode: {"ids", "skip_special_tokens": false} → {"text"}, as a whole text (a space that the
///          tokenizer puts in front is taken off).
/// A line that is no such object is answered with {"error"}, and the rest goes on. Unknown fields
/// are ignored; null means absent. Lines are as long as memory allows.
void tokenize_lines(std::istream& in, std::ostream& out, const Tokenizer& tokenizer,
                    LinesMode mode);

}  // namespace baton::text
