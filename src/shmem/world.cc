#include "shmem/world.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>

namespace baton::shmem {
namespace {

using nlohmann::json;

bool is_uid_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

/// A value as an error message shows it: JSON, cut at 100 bytes.
std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 100) text = text.substr(0, 97) + "...";
  return text;
}

Status wrong(std::string_view key, const json& value, std::string_view expected) {
  return fail(ErrorCode::kInvalidArgument, "{}: '{}' is {}, expected {}", kWorldVariable, key,
              shown(value), expected);
}

Status read_int(const json& object, const char* key, int64_t low, int64_t high, int& out) {
  const json& value = object.at(key);
  const std::string expected = fmt::format("an integer from {} to {}", low, high);
  if (!value.is_number_integer()) return wrong(key, value, expected);
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return wrong(key, value, expected);
  }
  const int64_t number = value.get<int64_t>();
  if (number < low || number > high) return wrong(key, value, expected);
  out = static_cast<int>(number);
  return {};
}

Status read_uid(const json& value, std::string& out) {
  constexpr std::string_view kExpected = "a string of 1 to 64 of A-Z a-z 0-9 . _ -";
  if (!value.is_string()) return wrong("uid", value, kExpected);
  const auto& text = value.get_ref<const std::string&>();
  if (text.empty() || text.size() > kMaxUidBytes ||
      !std::all_of(text.begin(), text.end(), is_uid_char)) {
    return wrong("uid", value, kExpected);
  }
  out = text;
  return {};
}

Status read_join(const json& value, Join& out) {
  if (value == "first") {
    out = Join::kFirst;
  } else if (value == "later") {
    out = Join::kLater;
  } else {
    return wrong("join", value, "\"first\" or \"later\"");
  }
  return {};
}

/// Parses an object and notes a key of the top level that comes twice (nlohmann keeps the last).
Result<json> parse_object(std::string_view text) {
  std::set<std::string> seen;
  std::string repeated;
  const auto on_event = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1 &&
        !seen.insert(parsed.get<std::string>()).second) {
      repeated = parsed.get<std::string>();
    }
    return true;
  };
  json parsed = json::parse(text, on_event, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    const std::string start(text.substr(0, 100));
    return fail(ErrorCode::kInvalidArgument,
                "{} is {}, expected a JSON object {{\"uid\":\"…\",\"npes\":N,\"pe_start\":K}}",
                kWorldVariable, shown(json(start)));
  }
  if (!repeated.empty()) {
    return fail(ErrorCode::kInvalidArgument, "{}: key '{}' comes twice", kWorldVariable, repeated);
  }
  return parsed;
}

Status check_keys(const json& object) {
  for (const char* key : {"uid", "npes", "pe_start"}) {
    if (!object.contains(key)) {
      return fail(ErrorCode::kInvalidArgument, "{}: key '{}' is missing", kWorldVariable, key);
    }
  }
  for (const auto& [key, value] : object.items()) {
    if (key == "uid" || key == "npes" || key == "pe_start" || key == "join") continue;
    return fail(ErrorCode::kInvalidArgument,
                "{}: unknown key {} with value {}; known are uid, npes, pe_start, join",
                kWorldVariable, shown(json(key)), shown(value));
  }
  return {};
}

}  // namespace

Result<WorldConfig> parse_world(std::string_view text) {
  const auto object = parse_object(text);
  if (!object) return tl::unexpected(object.error());
  WorldConfig world;
  Status status = check_keys(*object);
  if (status) status = read_uid(object->at("uid"), world.uid);
  if (status) status = read_int(*object, "npes", 1, kMaxPes, world.npes);
  if (status) status = read_int(*object, "pe_start", 0, world.npes - 1, world.pe_start);
  if (status && object->contains("join")) status = read_join(object->at("join"), world.join);
  if (!status) return tl::unexpected(status.error());
  return world;
}

std::string to_json(const WorldConfig& world) {
  // The uid has no character that JSON would escape.
  return fmt::format(R"({{"uid":"{}","npes":{},"pe_start":{},"join":"{}"}})", world.uid, world.npes,
                     world.pe_start, world.join == Join::kFirst ? "first" : "later");
}

Status check_place(const WorldConfig& world, int n_pes) {
  const auto bad = [](std::string what) -> Status {
    return tl::unexpected(Error{ErrorCode::kInvalidArgument, std::move(what), false});
  };
  if (world.uid.empty() || world.uid.size() > kMaxUidBytes ||
      !std::all_of(world.uid.begin(), world.uid.end(), is_uid_char)) {
    return bad(fmt::format("world uid '{}': expected 1 to 64 of A-Z a-z 0-9 . _ -", world.uid));
  }
  if (world.npes < 1 || world.npes > kMaxPes) {
    return bad(
        fmt::format("world {}: npes is {}, expected 1 to {}", world.uid, world.npes, kMaxPes));
  }
  if (world.pe_start < 0 || world.pe_start >= world.npes) {
    return bad(fmt::format("world {}: pe_start is {}, expected 0 to {}", world.uid, world.pe_start,
                           world.npes - 1));
  }
  if (n_pes < 1 || n_pes > world.npes - world.pe_start) {
    return bad(fmt::format("world {}: {} devices from PE {} on don't fit into npes {}", world.uid,
                           n_pes, world.pe_start, world.npes));
  }
  return {};
}

}  // namespace baton::shmem
