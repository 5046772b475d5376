#include "cli/size.h"

#include <charconv>
#include <cmath>
#include <optional>

namespace baton::cli {
namespace {

struct Number {
  double value;
  std::string_view unit;
};

std::optional<Number> split(std::string_view text) {
  double value = 0;
  const auto [rest, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  return Number{value, {rest, static_cast<size_t>(text.data() + text.size() - rest)}};
}

}  // namespace

Result<uint64_t> parse_bytes(std::string_view flag, std::string_view text) {
  const auto bad = [&] {
    return fail(ErrorCode::kInvalidArgument, "{} '{}': use a size such as 512MiB or 2GiB", flag,
                text);
  };
  const auto number = split(text);
  if (!number) return bad();
  double factor = 1;
  if (!number->unit.empty() && number->unit != "B") {
    const size_t power = std::string_view("KMGT").find(number->unit[0]);
    const std::string_view tail = number->unit.substr(1);
    if (power == std::string_view::npos || !(tail.empty() || tail == "B" || tail == "iB"))
      return bad();
    factor = std::pow(1024.0, static_cast<double>(power) + 1);
  }
  const double bytes = number->value * factor;
  if (bytes > 1e15) return bad();
  return static_cast<uint64_t>(bytes);
}

Result<std::chrono::milliseconds> parse_duration(std::string_view flag, std::string_view text) {
  const auto number = split(text);
  double ms = -1;
  if (number) {
    if (number->unit.empty() || number->unit == "s") ms = number->value * 1e3;
    if (number->unit == "ms") ms = number->value;
    if (number->unit == "m") ms = number->value * 60e3;
    if (number->unit == "h") ms = number->value * 3600e3;
  }
  if (ms < 0 || ms > 24 * 3600e3) {
    return fail(ErrorCode::kInvalidArgument, "{} '{}': use a time such as 30s or 500ms", flag,
                text);
  }
  return std::chrono::milliseconds(static_cast<int64_t>(ms));
}

}  // namespace baton::cli
