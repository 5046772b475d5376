#include "format/gguf.h"

#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "format/gguf_types.h"

namespace baton::format {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are read as they lie");

template <typename T>
T load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

/// `from` as a T if the number is the same.
template <typename T, typename From>
bool narrow(From from, T& out) {
  if constexpr (std::is_signed_v<From>) {
    if (from < 0) {
      if constexpr (std::is_unsigned_v<T>) {
        return false;
      } else if (static_cast<int64_t>(from) < int64_t{std::numeric_limits<T>::min()}) {
        return false;
      }
      out = static_cast<T>(from);
      return true;
    }
  }
  if (static_cast<uint64_t>(from) > static_cast<uint64_t>(std::numeric_limits<T>::max()))
    return false;
  out = static_cast<T>(from);
  return true;
}

template <typename T>
bool load_integer(GgufType type, const std::byte* data, T& out) {
  switch (type) {
    case GgufType::kUint8:
      return narrow(load<uint8_t>(data), out);
    case GgufType::kInt8:
      return narrow(load<int8_t>(data), out);
    case GgufType::kUint16:
      return narrow(load<uint16_t>(data), out);
    case GgufType::kInt16:
      return narrow(load<int16_t>(data), out);
    case GgufType::kUint32:
      return narrow(load<uint32_t>(data), out);
    case GgufType::kInt32:
      return narrow(load<int32_t>(data), out);
    case GgufType::kUint64:
      return narrow(load<uint64_t>(data), out);
    case GgufType::kInt64:
      return narrow(load<int64_t>(data), out);
    default:
      return false;
  }
}

template <typename T>
bool load_float(GgufType type, const std::byte* data, T& out) {
  if (type == GgufType::kFloat32) {
    out = static_cast<T>(load<float>(data));
    return true;
  }
  if (type != GgufType::kFloat64) return false;
  out = static_cast<T>(load<double>(data));
  return true;
}

std::string_view text_of(std::span<const std::byte> data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

}  // namespace

std::string_view name(GgufType type) {
  static constexpr std::array<std::string_view, 13> kNames = {
      "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
      "bool",  "string", "array",  "uint64", "int64",  "float64"};
  const auto index = static_cast<size_t>(type);
  return index < kNames.size() ? kNames[index] : "unknown type";
}

std::string GgufValue::type_name() const {
  if (type_ != GgufType::kArray) return std::string(name(type_));
  return fmt::format("array of {}", name(element_type_));
}

bool GgufValue::to(bool& out) const {
  if (type_ != GgufType::kBool) return false;
  out = load<uint8_t>(data_.data()) != 0;
  return true;
}
bool GgufValue::to(uint32_t& out) const { return load_integer(type_, data_.data(), out); }
bool GgufValue::to(int32_t& out) const { return load_integer(type_, data_.data(), out); }
bool GgufValue::to(uint64_t& out) const { return load_integer(type_, data_.data(), out); }
bool GgufValue::to(int64_t& out) const { return load_integer(type_, data_.data(), out); }
bool GgufValue::to(float& out) const { return load_float(type_, data_.data(), out); }
bool GgufValue::to(double& out) const { return load_float(type_, data_.data(), out); }
bool GgufValue::to(std::string_view& out) const {
  if (type_ != GgufType::kString) return false;
  out = text_of(data_);
  return true;
}

bool GgufValue::to(std::vector<GgufValue>& out) const {
  if (type_ != GgufType::kArray) return false;
  out.clear();
  out.reserve(size_);
  GgufCursor cursor(data_);
  for (uint64_t i = 0; i < size_; ++i) {
    GgufValue element;
    // The whole array was checked when the file was opened.
    if (!cursor.skip_value(element_type_, element)) return false;
    out.push_back(element);
  }
  return true;
}

template <typename T>
bool GgufValue::elements_to(std::vector<T>& out) const {
  if (type_ != GgufType::kArray || element_type_ == GgufType::kArray) return false;
  out.clear();
  out.reserve(size_);
  GgufCursor cursor(data_);
  for (uint64_t i = 0; i < size_; ++i) {
    GgufValue element;
    T value{};
    if (!cursor.skip_value(element_type_, element) || !element.to(value)) return false;
    out.push_back(value);
  }
  return true;
}

bool GgufValue::to(std::vector<std::string_view>& out) const { return elements_to(out); }
bool GgufValue::to(std::vector<bool>& out) const { return elements_to(out); }
bool GgufValue::to(std::vector<uint32_t>& out) const { return elements_to(out); }
bool GgufValue::to(std::vector<int32_t>& out) const { return elements_to(out); }
bool GgufValue::to(std::vector<float>& out) const { return elements_to(out); }

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].value;
}

tl::unexpected<Error> GgufMetadata::missing(std::string_view key) const {
  return fail(ErrorCode::kNotFound, "{}: metadata key {} is missing", file_, quoted(key));
}

tl::unexpected<Error> GgufMetadata::mismatch(std::string_view key, const GgufValue& value,
                                             std::string_view wanted) const {
  return fail(ErrorCode::kCorrupt, "{}: metadata key {} has type {}{}, but should hold {}", file_,
              quoted(key), value.type_name(),
              value.type() == GgufType::kArray ? fmt::format(" ({} elements)", value.size()) : "",
              wanted);
}

const TensorView* GgufFile::tensor(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

std::string shape_name(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string quoted(std::string_view text) {
  constexpr size_t kMaxShown = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (text.size() > kMaxShown ? "…'" : "'");
}

}  // namespace baton::format
