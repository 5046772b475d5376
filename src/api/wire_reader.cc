#include "api/wire_reader.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace baton::api {
namespace {

constexpr size_t kMaxLabelBytes = 128;

/// [own, id, logprob, …] → an entry; nothing if it is not of that shape.
std::optional<LogprobEntry> read_entry(const nlohmann::json& value, int n_vocab) {
  if (!value.is_array() || value.size() % 2 != 1 || value.size() > 2 * kMaxLogprobs + 1) {
    return std::nullopt;
  }
  LogprobEntry out;
  const auto own = read_exact(value[0]);
  if (!own) return std::nullopt;
  out.logprob = *own;
  out.top.reserve(value.size() / 2);
  for (size_t i = 1; i < value.size(); i += 2) {
    const auto logprob = read_exact(value[i + 1]);
    const bool is_id = value[i].is_number_unsigned() &&
                       value[i].get<uint64_t>() < static_cast<uint64_t>(std::max(n_vocab, 0));
    if (!is_id || !logprob) return std::nullopt;
    out.top.push_back({static_cast<TokenId>(value[i].get<uint64_t>()), *logprob});
  }
  return out;
}

}  // namespace

std::optional<float> read_exact(const nlohmann::json& value) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (value.is_number()) {
    // A double beyond the floats would be undefined as one.
    const double number = value.get<double>();
    constexpr double kMax = std::numeric_limits<float>::max();
    if (!(number >= -kMax && number <= kMax)) return std::nullopt;
    return static_cast<float>(number);
  }
  if (value == "inf") return kInfinity;
  if (value == "-inf") return -kInfinity;
  if (value == "nan") return std::numeric_limits<float>::quiet_NaN();
  return std::nullopt;
}

std::optional<uint64_t> WireReader::optional_digits(std::string_view key) {
  const nlohmann::json* value = fields_.find(key);
  if (value == nullptr) return std::nullopt;
  uint64_t out = 0;
  if (value->is_string()) {
    const std::string& text = value->get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (error == std::errc() && !text.empty() && end == text.data() + text.size()) return out;
  }
  fields_.fail(key, "'{}' must be a string of decimal digits below 2^64, not {}", fields_.path(key),
               describe(*value));
  return std::nullopt;
}

std::string WireReader::label(std::string_view key) {
  std::string text = fields_.string(key).value_or("");
  const bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c <= 0x7E; });
  if (text.size() <= kMaxLabelBytes && printable) return text;
  fields_.fail(key, "'{}' must be at most {} printable ASCII characters", fields_.path(key),
               kMaxLabelBytes);
  return {};
}

const nlohmann::json* WireReader::object(std::string_view key) {
  const nlohmann::json* value = fields_.find(key);
  if (value != nullptr && value->is_object()) return value;
  fields_.fail(key, "'{}' must be an object, not {}", fields_.path(key),
               value == nullptr ? "absent" : describe(*value));
  return nullptr;
}

const nlohmann::json* WireReader::array(std::string_view key) {
  const nlohmann::json* value = fields_.find(key);
  if (value != nullptr && value->is_array()) return value;
  fields_.fail(key, "'{}' must be an array, not {}", fields_.path(key),
               value == nullptr ? "absent" : describe(*value));
  return nullptr;
}

std::vector<LogprobEntry> WireReader::optional_logprobs(std::string_view key, int n_vocab) {
  std::vector<LogprobEntry> out;
  if (fields_.find(key) == nullptr) return out;
  const nlohmann::json* entries = array(key);
  if (entries == nullptr) return out;
  out.reserve(entries->size());
  for (size_t i = 0; i < entries->size(); ++i) {
    auto entry = read_entry((*entries)[i], n_vocab);
    if (!entry) {
      fields_.fail(key,
                   "'{}[{}]' must be [logprob, id, logprob, …] with at most {} ids, from 0 to {}",
                   fields_.path(key), i, kMaxLogprobs, n_vocab - 1);
      return {};
    }
    out.push_back(std::move(*entry));
  }
  return out;
}

KvAddress WireReader::address(std::string_view key) {
  KvAddress out;
  const nlohmann::json* value = object(key);
  if (value == nullptr) return out;
  WireReader part(*value, fields_.path(key) + ".");
  out.pe = Pe{part.integer("pe", {0, kInt32Max})};
  out.incarnation = part.digits("incarnation");
  out.layout_hash = part.digits("layout_hash");
  // -1: there is nothing to be put, so no window.
  out.window_slot = part.integer("window_slot", {-1, kInt32Max});
  out.window_tag = part.digits("window_tag");
  for (const TokenId block : part.ids("blocks", static_cast<int>(kInt32Max))) {
    out.blocks.push_back(BlockId{block});
  }
  join(part);
  return out;
}

}  // namespace baton::api
