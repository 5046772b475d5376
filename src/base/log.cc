#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>

namespace baton {
namespace {

void append_json_text(std::string_view text, spdlog::memory_buf_t& out) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (byte < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", byte);
    } else {
      out.push_back(c);
    }
  }
}

/// %* in the pattern: the message as the inside of a JSON string.
class JsonText final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& msg, const std::tm&,
              spdlog::memory_buf_t& out) override {
    append_json_text({msg.payload.data(), msg.payload.size()}, out);
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonText>();
  }
};

/// As part of a pattern, where % begins a flag.
std::string in_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '%' ? "%%" : std::string(1, c);
  return out;
}

std::string json_pattern(std::string_view name) {
  std::string process;
  if (!name.empty()) {
    spdlog::memory_buf_t quoted;
    append_json_text(name, quoted);
    process = in_pattern(fmt::format(R"("process":"{}",)", fmt::to_string(quoted)));
  }
  return R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","pid":%P,)" + process +
         R"("message":"%*"})";
}

}  // namespace

Status init_logging(std::string_view level, std::string_view format, std::string_view name) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    return fail(ErrorCode::kInvalidArgument,
                "--log-level '{}': use trace, debug, info, warn, error or off", level);
  }
  auto logger = std::make_shared<spdlog::logger>(
      "baton", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  if (format == "json") {
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<JsonText>('*').set_pattern(json_pattern(name));
    logger->set_formatter(std::move(formatter));
  } else if (format == "text") {
    const std::string process = name.empty() ? "" : in_pattern(name) + ": ";
    logger->set_pattern("%H:%M:%S.%e %^%L%$ " + process + "%v");
  } else {
    return fail(ErrorCode::kInvalidArgument, "--log-format '{}': use text or json", format);
  }
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace baton
