// What the parser and the value views share: a bounds-checked cursor over the file's bytes, and the
// geometry of every tensor type that ggml has. Private to src/format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "format/gguf.h"

namespace baton::format {

/// Nested arrays deeper than this are refused (no published file nests at all).
inline constexpr int kMaxArrayDepth = 8;

/// Reads forward through bytes; every read is checked against what remains. Thread-compatible.
class GgufCursor {
 public:
  explicit GgufCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] size_t position() const { return position_; }
  [[nodiscard]] size_t remaining() const { return bytes_.size() - position_; }

  template <typename T>
  [[nodiscard]] bool read(T& out) {
    if (remaining() < sizeof(T)) return false;
    std::memcpy(&out, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }
  /// A length-prefixed string, as a view.
  [[nodiscard]] bool read_string(std::string_view& out);
  /// Steps over one value of `type` and describes it in `out`. False if it is cut off, of an
  /// unknown type, a bool that is neither 0 nor 1, or nested too deep; error() then says which.
  [[nodiscard]] bool skip_value(GgufType type, GgufValue& out) { return skip_value(type, out, 0); }
  /// Why the last skip_value() failed, as the end of a sentence that starts with the key's name.
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  bool skip_value(GgufType type, GgufValue& out, int depth);
  bool skip_array(GgufValue& out, int depth);
  bool skip_bools(uint64_t n);
  template <typename... Args>
  bool refuse(fmt::format_string<Args...> format, Args&&... args) {
    error_ = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
  std::string error_;
};

/// Geometry of a ggml type, ours or not: n values take n / block_values * block_bytes bytes.
struct GgmlGeometry {
  uint32_t id;
  std::string_view name;
  uint32_t block_values;
  uint32_t block_bytes;
};
/// nullptr for an id that ggml does not define (or has withdrawn).
[[nodiscard]] const GgmlGeometry* ggml_geometry(uint32_t ggml_type);

}  // namespace baton::format
