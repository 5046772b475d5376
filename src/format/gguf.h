// GGUF v2 and v3: bytes → checked, typed views. No value or view outlives the file; nothing is
// copied that is larger than an index of views.
//
// The format (gguf.h of llama.cpp, docs/gguf.md of ggml), all little-endian:
//   "GGUF", u32 version, u64 n_tensors, u64 n_metadata
//   n_metadata × { string key, u32 type, value }       string = u64 length + bytes, no terminator
//                                                      array  = u32 element type, u64 n, n elements
//   n_tensors × { string name, u32 n_dims, u64 dims[n_dims], u32 type, u64 offset }  dims fastest
//   first padding to general.alignment (default 32), then the tensors' data; offsets count from
//   there
// Every count, length and offset is checked against the bytes that are there before anything is
// allocated or read: a truncated, corrupt or hostile file gives an Error naming file and field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/tensor_type.h"
#include "format/mapping.h"

namespace baton::format {

/// Type ids of metadata values as the file has them.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
[[nodiscard]] std::string_view name(GgufType type);

/// One metadata value: a checked view into the file, cheap to copy. Immutable.
///
/// to(out) sets `out` and returns true if the value has that kind and fits: integers of any width
/// and sign convert when the number fits, floats to float and double, arrays element by element.
/// bool only from bool.
class GgufValue {
 public:
  [[nodiscard]] GgufType type() const { return type_; }
  /// "uint32", "string", "array of string": for messages and `inspect`.
  [[nodiscard]] std::string type_name() const;
  /// Elements of an array; 1 for everything else.
  [[nodiscard]] uint64_t size() const { return size_; }
  /// Element type of an array; the type itself for everything else.
  [[nodiscard]] GgufType element_type() const { return element_type_; }

  [[nodiscard]] bool to(bool& out) const;
  [[nodiscard]] bool to(uint32_t& out) const;
  [[nodiscard]] bool to(int32_t& out) const;
  [[nodiscard]] bool to(uint64_t& out) const;
  [[nodiscard]] bool to(int64_t& out) const;
  [[nodiscard]] bool to(float& out) const;
  [[nodiscard]] bool to(double& out) const;
  [[nodiscard]] bool to(std::string_view& out) const;
  /// Views of all elements; the strings themselves stay in the file.
  [[nodiscard]] bool to(std::vector<std::string_view>& out) const;
  [[nodiscard]] bool to(std::vector<bool>& out) const;
  [[nodiscard]] bool to(std::vector<uint32_t>& out) const;
  [[nodiscard]] bool to(std::vector<int32_t>& out) const;
  [[nodiscard]] bool to(std::vector<float>& out) const;
  /// The elements as values of their own: the way into nested arrays.
  [[nodiscard]] bool to(std::vector<GgufValue>& out) const;

 private:
  friend class GgufCursor;
  template <typename T>
  bool elements_to(std::vector<T>& out) const;

  GgufType type_ = GgufType::kUint8;
  GgufType element_type_ = GgufType::kUint8;
  uint64_t size_ = 1;
  std::span<const std::byte> data_;  ///< the value's bytes; of a string without its length
};

/// What a C++ type is called in messages: "an unsigned 32-bit integer", …
[[nodiscard]] constexpr std::string_view wanted_name(bool*) { return "a bool"; }
[[nodiscard]] constexpr std::string_view wanted_name(uint32_t*) {
  return "an unsigned 32-bit integer";
}
[[nodiscard]] constexpr std::string_view wanted_name(int32_t*) { return "a 32-bit integer"; }
[[nodiscard]] constexpr std::string_view wanted_name(uint64_t*) { return "an unsigned integer"; }
[[nodiscard]] constexpr std::string_view wanted_name(int64_t*) { return "an integer"; }
[[nodiscard]] constexpr std::string_view wanted_name(float*) { return "a float"; }
[[nodiscard]] constexpr std::string_view wanted_name(double*) { return "a float"; }
[[nodiscard]] constexpr std::string_view wanted_name(std::string_view*) { return "a string"; }
[[nodiscard]] constexpr std::string_view wanted_name(std::vector<std::string_view>*) {
  return "an array of strings";
}
[[nodiscard]] constexpr std::string_view wanted_name(std::vector<bool>*) {
  return "an array of bools";
}
[[nodiscard]] constexpr std::string_view wanted_name(std::vector<uint32_t>*) {
  return "an array of unsigned 32-bit integers";
}
[[nodiscard]] constexpr std::string_view wanted_name(std::vector<int32_t>*) {
  return "an array of 32-bit integers";
}
[[nodiscard]] constexpr std::string_view wanted_name(std::vector<float>*) {
  return "an array of floats";
}
[[nodiscard]] constexpr std::string_view wanted_name(std::vector<GgufValue>*) { return "an array"; }

/// The key-value part of a file, in file order. Immutable once parsed.
class GgufMetadata {
 public:
  struct Entry {
    std::string_view key;
    GgufValue value;
  };
  [[nodiscard]] std::span<const Entry> entries() const { return entries_; }
  [[nodiscard]] const GgufValue* find(std::string_view key) const;
  [[nodiscard]] bool contains(std::string_view key) const { return find(key) != nullptr; }

  /// The value of `key` as a T (any type GgufValue::to takes): kNotFound when it is absent,
  /// kCorrupt when it is of another type or does not fit.
  template <typename T>
  [[nodiscard]] Result<T> get(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return missing(key);
    T out{};
    if (!value->to(out)) return mismatch(key, *value, wanted_name(static_cast<T*>(nullptr)));
    return out;
  }
  /// As get(), but an absent key gives `fallback`; a wrong type is still an error.
  template <typename T>
  [[nodiscard]] Result<T> get_or(std::string_view key, T fallback) const {
    if (!contains(key)) return fallback;
    return get<T>(key);
  }

 private:
  friend class GgufParser;
  [[nodiscard]] tl::unexpected<Error> missing(std::string_view key) const;
  [[nodiscard]] tl::unexpected<Error> mismatch(std::string_view key, const GgufValue& value,
                                               std::string_view wanted) const;

  std::string file_;  ///< for messages
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> index_;
};

/// One tensor: a checked view into the file.
struct TensorView {
  std::string_view name;
  uint32_t ggml_type = 0;          ///< as the file says
  std::optional<TensorType> type;  ///< empty: a type that we can't compute with
  std::vector<int64_t> shape;  ///< 1 to 4 dimensions > 0, slowest first: a matrix is [n_out, n_in]
  std::span<const std::byte> data;  ///< the whole tensor; empty when even its size is unknown to us
};
/// ggml's name of a tensor type ("Q2_K"), or "type 99".
[[nodiscard]] std::string ggml_type_name(uint32_t ggml_type);
/// "[49152, 576]"
[[nodiscard]] std::string shape_name(std::span<const int64_t> shape);
/// Text of a file for a message: quoted, control characters and bytes that aren't ASCII escaped, at
/// most 80 characters of it.
[[nodiscard]] std::string quoted(std::string_view text);

/// A parsed GGUF file. Movable; views stay valid as long as some GgufFile holds the mapping (moving
/// keeps them). Immutable, so thread-safe.
class GgufFile {
 public:
  /// Maps and checks the file. Errors name the path and the field: kNotFound, kIo, kCorrupt, or
  /// kUnsupported for what is valid but not for us (version 1, big-endian).
  [[nodiscard]] static Result<GgufFile> open(const std::string& path);
  /// The same over memory of the caller's, which must outlive the file; `path` is only for
  /// messages.
  [[nodiscard]] static Result<GgufFile> parse(std::span<const std::byte> bytes, std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] uint32_t version() const { return version_; }
  [[nodiscard]] const GgufMetadata& metadata() const { return metadata_; }
  [[nodiscard]] std::span<const TensorView> tensors() const { return tensors_; }
  /// nullptr when there is no such tensor.
  [[nodiscard]] const TensorView* tensor(std::string_view name) const;
  /// Mapping::stamp; empty for one that was parsed from memory.
  [[nodiscard]] const std::string& stamp() const { return mapping_.stamp(); }
  /// The mapped pages won't be needed soon.
  void release_pages() const { mapping_.release_pages(); }

 private:
  friend class GgufParser;
  GgufFile() = default;

  std::string path_;
  uint64_t size_bytes_ = 0;
  uint32_t version_ = 0;
  Mapping mapping_;
  GgufMetadata metadata_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace baton::format
