#include "supervisor/ready_line.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace baton::supervisor {
namespace {

constexpr std::array<std::pair<std::string_view, ErrorCode>, 9> kCodes{{
    {"invalid_argument", ErrorCode::kInvalidArgument},
    {"not_found", ErrorCode::kNotFound},
    {"exhausted", ErrorCode::kExhausted},
    {"unavailable", ErrorCode::kUnavailable},
    {"cancelled", ErrorCode::kCancelled},
    {"corrupt", ErrorCode::kCorrupt},
    {"unsupported", ErrorCode::kUnsupported},
    {"io", ErrorCode::kIo},
    {"internal", ErrorCode::kInternal},
}};

/// Bytes that are no UTF-8 (a path, say) become U+FFFD instead of an exception.
std::string line_of(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string text_of(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::string ready_line(const Ready& ready) {
  return line_of({{"url", ready.url}, {"pid", ready.pid}});
}

std::string failed_line(const Error& error) {
  const auto* code = std::find_if(kCodes.begin(), kCodes.end(),
                                  [&](const auto& entry) { return entry.second == error.code; });
  return line_of({{"error", error.message},
                  {"code", code == kCodes.end() ? "internal" : std::string(code->first)}});
}

Result<Ready> parse_ready_line(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) {
    if (const std::string error = text_of(json, "error"); !error.empty()) {
      const std::string name = text_of(json, "code");
      const auto* code = std::find_if(kCodes.begin(), kCodes.end(),
                                      [&](const auto& entry) { return entry.first == name; });
      return tl::unexpected(
          Error{code == kCodes.end() ? ErrorCode::kInternal : code->second, error, false});
    }
    if (const std::string url = text_of(json, "url"); !url.empty()) {
      const auto pid = json.find("pid");
      return Ready{url, pid != json.end() && pid->is_number_integer() ? pid->get<int>() : 0};
    }
  }
  return fail(ErrorCode::kCorrupt, "wrote '{}' to its ready pipe, which says neither url nor error",
              line.substr(0, 200));
}

}  // namespace baton::supervisor
