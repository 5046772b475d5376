#include "testing/gguf_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace baton::testing {
namespace {

using Bytes = std::vector<std::byte>;

void append(Bytes& out, std::span<const std::byte> more) {
  // Not insert(): g++ 12 warns of an overflow inside it that can't happen.
  const size_t begin = out.size();
  out.resize(begin + more.size());
  std::copy(more.begin(), more.end(), out.begin() + static_cast<ptrdiff_t>(begin));
}

template <typename T>
void append_value(Bytes& out, T value) {
  std::byte raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof value);
  append(out, raw);
}

void append_string(Bytes& out, std::string_view text) {
  append_value<uint64_t>(out, text.size());
  append(out, std::as_bytes(std::span(text.data(), text.size())));
}

size_t padded(size_t n, size_t alignment) { return (n + alignment - 1) / alignment * alignment; }

// Type ids of metadata values: see format/gguf.h.
constexpr uint32_t kString = 8;
constexpr uint32_t kArray = 9;

// Of a tensor that is filled, so much is in memory at a time.
constexpr size_t kPieceBytes = size_t{1} << 20;

}  // namespace

GgufWriter& GgufWriter::add_raw(std::string_view key, uint32_t type,
                                std::span<const std::byte> value) {
  Bytes encoded;
  append_value(encoded, type);
  append(encoded, value);
  entries_.push_back({std::string(key), std::move(encoded)});
  return *this;
}

template <typename T>
GgufWriter& GgufWriter::add_scalar(std::string_view key, uint32_t type, T value) {
  Bytes raw;
  append_value(raw, value);
  return add_raw(key, type, raw);
}

template <typename T>
GgufWriter& GgufWriter::add_array(std::string_view key, uint32_t type, std::span<const T> values) {
  Bytes raw;
  append_value(raw, type);
  append_value<uint64_t>(raw, values.size());
  append(raw, std::as_bytes(values));
  return add_raw(key, kArray, raw);
}

GgufWriter& GgufWriter::add(std::string_view key, bool value) {
  return add_scalar<uint8_t>(key, 7, value ? 1 : 0);
}
GgufWriter& GgufWriter::add(std::string_view key, uint8_t value) {
  return add_scalar(key, 0, value);
}
GgufWriter& GgufWriter::add(std::string_view key, int8_t value) {
  return add_scalar(key, 1, value);
}
GgufWriter& GgufWriter::add(std::string_view key, uint16_t value) {
  return add_scalar(key, 2, value);
}
GgufWriter& GgufWriter::add(std::string_view key, int16_t value) {
  return add_scalar(key, 3, value);
}
GgufWriter& GgufWriter::add(std::string_view key, uint32_t value) {
  return add_scalar(key, 4, value);
}
GgufWriter& GgufWriter::add(std::string_view key, int32_t value) {
  return add_scalar(key, 5, value);
}
GgufWriter& GgufWriter::add(std::string_view key, uint64_t value) {
  return add_scalar(key, 10, value);
}
GgufWriter& GgufWriter::add(std::string_view key, int64_t value) {
  return add_scalar(key, 11, value);
}
GgufWriter& GgufWriter::add(std::string_view key, float value) { return add_scalar(key, 6, value); }
GgufWriter& GgufWriter::add(std::string_view key, double value) {
  return add_scalar(key, 12, value);
}

GgufWriter& GgufWriter::add(std::string_view key, std::string_view value) {
  Bytes raw;
  append_string(raw, value);
  return add_raw(key, kString, raw);
}

GgufWriter& GgufWriter::add(std::string_view key, std::span<const std::string> values) {
  Bytes raw;
  append_value(raw, kString);
  append_value<uint64_t>(raw, values.size());
  for (const std::string& value : values) append_string(raw, value);
  return add_raw(key, kArray, raw);
}

GgufWriter& GgufWriter::add(std::string_view key, std::span<const float> values) {
  return add_array(key, 6, values);
}
GgufWriter& GgufWriter::add(std::string_view key, std::span<const int32_t> values) {
  return add_array(key, 5, values);
}

GgufWriter& GgufWriter::remove(std::string_view key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
  return *this;
}

GgufWriter& GgufWriter::add_tensor(std::string_view name, std::span<const int64_t> shape,
                                   uint32_t ggml_type, std::span<const std::byte> data) {
  tensors_.push_back({.name = std::string(name),
                      .shape = {shape.begin(), shape.end()},
                      .ggml_type = ggml_type,
                      .n_bytes = data.size(),
                      .data = {data.begin(), data.end()},
                      .fill = {},
                      .row_bytes = 0});
  return *this;
}

GgufWriter& GgufWriter::add_tensor(std::string_view name, std::span<const int64_t> shape,
                                   TensorType type, FillRows fill) {
  size_t n_rows = 1;
  for (size_t d = 0; d + 1 < shape.size(); ++d) n_rows *= static_cast<size_t>(shape[d]);
  const size_t one_row = row_bytes(type, shape.back());
  tensors_.push_back({.name = std::string(name),
                      .shape = {shape.begin(), shape.end()},
                      .ggml_type = info(type).ggml_id,
                      .n_bytes = n_rows * one_row,
                      .data = {},
                      .fill = std::move(fill),
                      .row_bytes = one_row});
  return *this;
}

GgufWriter& GgufWriter::add_tensor(std::string_view name, std::span<const int64_t> shape,
                                   std::span<const float> values) {
  return add_tensor(name, shape, info(TensorType::kF32).ggml_id, std::as_bytes(values));
}

GgufWriter& GgufWriter::remove_tensor(std::string_view name) {
  std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
  return *this;
}

std::vector<std::byte> GgufWriter::header() const {
  Bytes out;
  append(out, std::as_bytes(std::span("GGUF", 4)));
  append_value(out, version_);
  append_value<uint64_t>(out, tensors_.size());
  append_value<uint64_t>(out, entries_.size());
  for (const Entry& entry : entries_) {
    append_string(out, entry.key);
    append(out, entry.encoded);
  }
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    append_string(out, tensor.name);
    append_value(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t d = tensor.shape.size(); d-- > 0;) append_value(out, tensor.shape[d]);
    append_value(out, tensor.ggml_type);
    append_value(out, offset);
    offset += padded(tensor.n_bytes, alignment_);
  }
  return out;
}

bool GgufWriter::emit(const Sink& sink) const {
  const Bytes first = header();
  if (!sink(first)) return false;
  size_t end = first.size();  // of what was put out
  for (const Tensor& tensor : tensors_) {
    const Bytes padding(padded(end, alignment_) - end);
    if (!sink(padding)) return false;
    end += padding.size() + tensor.n_bytes;
    if (!tensor.fill) {
      if (!sink(tensor.data)) return false;
      continue;
    }
    const size_t rows_at_once = std::max(kPieceBytes / tensor.row_bytes, size_t{1});
    Bytes piece;
    for (size_t done = 0; done < tensor.n_bytes; done += piece.size()) {
      piece.resize(std::min(rows_at_once * tensor.row_bytes, tensor.n_bytes - done));
      tensor.fill(static_cast<int64_t>(done / tensor.row_bytes), piece);
      if (!sink(piece)) return false;
    }
  }
  return true;
}

std::vector<std::byte> GgufWriter::bytes() const {
  Bytes out;
  emit([&](std::span<const std::byte> piece) {
    append(out, piece);
    return true;
  });
  return out;
}

Status GgufWriter::write(const std::string& path) const {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return fail(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
  const bool written = emit([&](std::span<const std::byte> piece) {
    return piece.empty() || std::fwrite(piece.data(), 1, piece.size(), file) == piece.size();
  });
  if (std::fclose(file) != 0 || !written) {
    return fail(ErrorCode::kIo, "{}: can't write: {}", path, std::strerror(errno));
  }
  return {};
}

}  // namespace baton::testing
