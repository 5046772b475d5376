// The work of `baton render`: JSON lines in, JSON lines out.
#pragma once

#include <iosfwd>

#include "text/chat_template.h"

namespace baton::text {

/// Answers each line of `in` with one line on `out`, in order, until the end of `in`.
///
/// {"messages", "tools": null, "add_generation_prompt": true, "continue_final_message": false,
///  "chat_template_kwargs": {}, "bos_token", "eos_token", "now": "2026-01-15T12:00:00"} → {"text"}.
/// add_generation_prompt is false by default with continue_final_message; the tokens are the
/// model's own by default, `now` (local time, for strftime_now) is the clock's. A line that is no
/// such object or does not render is answered with {"error"}, and the rest goes on. Unknown fields
/// are ignored; null means absent.
void render_lines(std::istream& in, std::ostream& out, const ChatTemplate& chat_template);

}  // namespace baton::text
