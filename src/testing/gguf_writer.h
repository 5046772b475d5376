// Writes GGUF files for tests: metadata and tensors in, bytes or a file out. The opposite of
// format/gguf.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/tensor_type.h"

namespace baton::testing {

/// Collects entries in order and lays them out as GGUF v2 or v3 (the layouts are the same). It
/// checks nothing: tests write broken files with it too. Thread-compatible.
class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3, uint32_t alignment = 32)
      : version_(version), alignment_(alignment) {}

  GgufWriter& add(std::string_view key, bool value);
  GgufWriter& add(std::string_view key, uint8_t value);
  GgufWriter& add(std::string_view key, int8_t value);
  GgufWriter& add(std::string_view key, uint16_t value);
  GgufWriter& add(std::string_view key, int16_t value);
  GgufWriter& add(std::string_view key, uint32_t value);
  GgufWriter& add(std::string_view key, int32_t value);
  GgufWriter& add(std::string_view key, uint64_t value);
  GgufWriter& add(std::string_view key, int64_t value);
  GgufWriter& add(std::string_view key, float value);
  GgufWriter& add(std::string_view key, double value);
  GgufWriter& add(std::string_view key, std::string_view value);
  GgufWriter& add(std::string_view key, const char* value) {
    return add(key, std::string_view(value));
  }
  GgufWriter& add(std::string_view key, std::span<const std::string> values);
  GgufWriter& add(std::string_view key, std::span<const float> values);
  GgufWriter& add(std::string_view key, std::span<const int32_t> values);
  /// An entry with any type id and any value bytes (nested arrays, nonsense).
  GgufWriter& add_raw(std::string_view key, uint32_t type, std::span<const std::byte> value);
  /// Takes an entry out again; nothing happens if there is none.
  GgufWriter& remove(std::string_view key);

  /// `shape` slowest first, as in format::TensorView; `data` is written as it is.
  GgufWriter& add_tensor(std::string_view name, std::span<const int64_t> shape, uint32_t ggml_type,
                         std::span<const std::byte> data);
  GgufWriter& add_tensor(std::string_view name, std::span<const int64_t> shape,
                         std::span<const float> values);
  /// A tensor too large to be held here: bytes() and write() ask for its rows (of the last
  /// dimension), a few at a time and in order. Fills `rows`, which are whole rows from `first_row`
  /// on.
  using FillRows = std::function<void(int64_t first_row, std::span<std::byte> rows)>;
  GgufWriter& add_tensor(std::string_view name, std::span<const int64_t> shape, TensorType type,
                         FillRows fill);
  GgufWriter& remove_tensor(std::string_view name);

  [[nodiscard]] std::vector<std::byte> bytes() const;
  /// kIo names the file and the reason; what was written by then stays.
  [[nodiscard]] Status write(const std::string& path) const;

 private:
  struct Entry {
    std::string key;
    std::vector<std::byte> encoded;  ///< type and value
  };
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    uint32_t ggml_type;
    size_t n_bytes;
    std::vector<std::byte> data;  ///< all of it, where there is no `fill`
    FillRows fill;
    size_t row_bytes;  ///< what `fill` counts in
  };
  /// Takes the file's bytes, piece by piece; false ends it.
  using Sink = std::function<bool(std::span<const std::byte>)>;
  [[nodiscard]] std::vector<std::byte> header() const;
  bool emit(const Sink& sink) const;
  template <typename T>
  GgufWriter& add_scalar(std::string_view key, uint32_t type, T value);
  template <typename T>
  GgufWriter& add_array(std::string_view key, uint32_t type, std::span<const T> values);

  uint32_t version_;
  uint32_t alignment_;
  std::vector<Entry> entries_;
  std::vector<Tensor> tensors_;
};

}  // namespace baton::testing
