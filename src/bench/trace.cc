#include "bench/trace.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/lengths.h"

namespace baton::bench {
namespace {

using nlohmann::json;

constexpr size_t kMaxLineBytes = size_t{4} << 20;
constexpr double kMaxSeconds = 1e10;  // 300 years
constexpr std::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";

tl::unexpected<Error> bad(std::string message) {
  return tl::unexpected(Error{ErrorCode::kCorrupt, std::move(message), false});
}

/// A number of tokens: at least 1 for a prompt; answers of 0 tokens are asked for as 1.
std::optional<int> tokens(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto n = value.get<uint64_t>();
  if (n > static_cast<uint64_t>(kMostTokens)) return std::nullopt;
  return std::max(1, static_cast<int>(n));
}

Result<TraceRow> parse_mooncake(std::string_view line) {
  // Without its own exceptions, and no deeper than an array in an object: depth is no danger here,
  // since neither nlohmann's parser nor its destructor recurses.
  const json row = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) return bad("not a JSON object");
  const auto field = [&](const char* key) -> const json& {
    static const json kNone;
    const auto it = row.find(key);
    return it == row.end() ? kNone : *it;
  };
  TraceRow out;
  const json& time = field("timestamp");
  if (!time.is_number()) return bad("'timestamp' must be a number of milliseconds");
  out.time_s = time.get<double>() / 1e3;
  if (!(out.time_s >= 0 && out.time_s <= kMaxSeconds)) {
    return bad("'timestamp' must be a number of milliseconds from 0");
  }
  const auto n_prompt = tokens(field("input_length"));
  if (!n_prompt) return bad("'input_length' must be a number of tokens");
  const auto n_output = tokens(field("output_length"));
  if (!n_output) return bad("'output_length' must be a number of tokens");
  out.n_prompt = *n_prompt;
  out.n_output = *n_output;
  const json& ids = field("hash_ids");
  if (ids.is_null()) return out;
  if (!ids.is_array()) return bad("'hash_ids' must be a list of integers");
  out.hash_ids.reserve(ids.size());
  for (const json& id : ids) {
    if (!id.is_number_integer()) return bad("'hash_ids' must be a list of integers");
    out.hash_ids.push_back(id.get<int64_t>());
  }
  return out;
}

/// The whole of `text` as a number, at least `low` and at most `high`.
std::optional<int> integer(std::string_view text, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= low && value <= high ? std::optional(value) : std::nullopt;
}

/// Seconds since 1970 of "2023-11-16 18:17:03.9799600", in UTC.
std::optional<double> timestamp(std::string_view text) {
  for (const std::string_view zone : {"+00:00", "Z"}) {
    if (text.ends_with(zone)) text.remove_suffix(zone.size());
  }
  constexpr std::string_view kForm = "dddd-dd-dd dd:dd:dd";
  if (text.size() < kForm.size()) return std::nullopt;
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    const bool separator = text[i] == kForm[i] || (kForm[i] == ' ' && text[i] == 'T');
    if (kForm[i] == 'd' ? !digit : !separator) return std::nullopt;
  }
  const auto part = [&](size_t at, size_t n, int high) {
    return integer(text.substr(at, n), 0, high);
  };
  const auto year = part(0, 4, 9999);
  const auto month = part(5, 2, 12);
  const auto day = part(8, 2, 31);
  const auto hour = part(11, 2, 23);
  const auto minute = part(14, 2, 59);
  const auto second = part(17, 2, 60);
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  double fraction = 0;
  if (std::string_view rest = text.substr(kForm.size()); !rest.empty()) {
    rest.remove_prefix(1);
    const bool digits =
        !rest.empty() && rest.size() <= 9 && rest.find_first_not_of("0123456789") == rest.npos;
    if (text[kForm.size()] != '.' || !digits) return std::nullopt;
    fraction = *integer(rest, 0, 999'999'999) * std::pow(10.0, -static_cast<double>(rest.size()));
  }
  const double days = std::chrono::sys_days(date).time_since_epoch().count();
  return days * 86400 + *hour * 3600 + *minute * 60 + *second + fraction;
}

Result<TraceRow> parse_azure(std::string_view line) {
  const size_t first = line.find(',');
  const size_t second = first == line.npos ? line.npos : line.find(',', first + 1);
  if (second == line.npos) return bad(fmt::format("three columns are wanted ({})", kAzureHeader));
  const auto time = timestamp(line.substr(0, first));
  if (!time) return bad("TIMESTAMP must be like 2023-11-16 18:17:03.9799600");
  const auto n_prompt = integer(line.substr(first + 1, second - first - 1), 0, kMostTokens);
  if (!n_prompt) return bad("ContextTokens must be a number of tokens");
  const auto n_output = integer(line.substr(second + 1), 0, kMostTokens);
  if (!n_output) return bad("GeneratedTokens must be a number of tokens");
  return TraceRow{*time, std::max(1, *n_prompt), std::max(1, *n_output), {}};
}

std::string_view trimmed(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t from = line.find_first_not_of(kSpace);
  if (from == line.npos) return {};
  return line.substr(from, line.find_last_not_of(kSpace) - from + 1);
}

}  // namespace

Result<std::vector<TraceRow>> parse_trace(std::string_view text, const std::string& name,
                                          size_t most_rows) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  std::vector<TraceRow> rows;
  Result<TraceRow> (*parse_row)(std::string_view) = nullptr;
  for (int64_t number = 1; !text.empty(); ++number) {
    const auto where = [&](const std::string& what) {
      return bad(fmt::format("{}:{}: {}", name, number, what));
    };
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > kMaxLineBytes) return where(fmt::format("a line over {} bytes", kMaxLineBytes));
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    if (parse_row == nullptr) {
      parse_row = line.front() == '{' ? parse_mooncake : parse_azure;
      if (line == kAzureHeader) continue;
      if (parse_row == parse_azure) {
        return where(
            fmt::format("neither a JSON object (Mooncake) nor '{}' (Azure)", kAzureHeader));
      }
    }
    auto row = parse_row(line);
    if (!row) return where(row.error().message);
    rows.push_back(std::move(*row));
    if (rows.size() == most_rows) break;
  }
  if (rows.empty()) return bad(fmt::format("{}: no request in it", name));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const TraceRow& a, const TraceRow& b) { return a.time_s < b.time_s; });
  const double start_s = rows.front().time_s;
  for (TraceRow& row : rows) row.time_s -= start_s;
  return rows;
}

}  // namespace baton::bench
