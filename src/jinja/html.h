// The five HTML escapes of markupsafe. Internal to src/jinja.
#pragma once

#include <string>
#include <string_view>

namespace baton::jinja {

/// & < > ' " → &amp; &lt; &gt; &#39; &#34;
[[nodiscard]] inline std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace baton::jinja
