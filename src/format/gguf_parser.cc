// The parser: one pass over header, metadata and tensor list, then the checks that need all of
// them.
#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "format/gguf.h"
#include "format/gguf_types.h"

namespace baton::format {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kDefaultAlignment = 32;
constexpr uint32_t kMinAlignment = 8;  // so that float32 tensors can be read in place
constexpr uint32_t kMaxAlignment = 1U << 20;
constexpr uint32_t kMaxDims = 4;            // GGML_MAX_DIMS
constexpr size_t kMaxKeyBytes = 65535;      // the format's own limit
constexpr size_t kMaxTensorNameBytes = 64;  // the format's own limit
// The shortest metadata entry (empty key, one byte) and tensor entry (empty name, one dimension).
constexpr size_t kLeastEntryBytes = 8 + 4 + 1;
constexpr size_t kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;

}  // namespace

/// Fills one GgufFile. Lives for one call of GgufFile::parse.
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, std::string path) : bytes_(bytes), cursor_(bytes) {
    file_.path_ = std::move(path);
    file_.size_bytes_ = bytes.size();
    file_.metadata_.file_ = file_.path_;
  }

  Result<GgufFile> parse() {
    if (auto status = parse_header(); !status) return tl::unexpected(status.error());
    if (auto status = parse_metadata(); !status) return tl::unexpected(status.error());
    if (auto status = parse_tensors(); !status) return tl::unexpected(status.error());
    if (auto status = place_tensors(); !status) return tl::unexpected(status.error());
    if (auto status = check_overlaps(); !status) return tl::unexpected(status.error());
    return std::move(file_);
  }

 private:
  template <typename... Args>
  tl::unexpected<Error> corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(ErrorCode::kCorrupt, "{}: {}", file_.path_,
                fmt::format(format, std::forward<Args>(args)...));
  }

  Status parse_header();
  Status parse_metadata();
  Status parse_entry(uint64_t i);
  Status parse_tensors();
  Status parse_tensor(uint64_t i);
  Status parse_shape(TensorView& tensor);
  Status place_tensors();
  Status place_tensor(TensorView& tensor, uint64_t offset, size_t data_begin);
  Status check_overlaps() const;
  Result<uint32_t> alignment() const;

  std::span<const std::byte> bytes_;
  GgufCursor cursor_;
  GgufFile file_;
  uint64_t n_tensors_ = 0;
  uint64_t n_metadata_ = 0;
  std::vector<uint64_t> offsets_;  ///< [n_tensors] as in the file, from the start of the data
};

Status GgufParser::parse_header() {
  uint32_t magic = 0;
  if (!cursor_.read(magic) || magic != kMagic) {
    return corrupt("not a GGUF file (it does not start with \"GGUF\")");
  }
  uint32_t& version = file_.version_;
  if (!cursor_.read(version)) return corrupt("the header is cut off in the version");
  if (version != 2 && version != 3) {
    if (version == 0x02000000 || version == 0x03000000) {
      return fail(ErrorCode::kUnsupported, "{}: a big-endian GGUF file; little-endian is needed",
                  file_.path_);
    }
    return fail(ErrorCode::kUnsupported, "{}: GGUF version {}; 2 and 3 are supported", file_.path_,
                version);
  }
  if (!cursor_.read(n_tensors_) || !cursor_.read(n_metadata_)) {
    return corrupt("the header is cut off in the counts of tensors and metadata");
  }
  if (n_metadata_ > cursor_.remaining() / kLeastEntryBytes) {
    return corrupt("the header counts {} metadata entries, more than the file has room for",
                   n_metadata_);
  }
  if (n_tensors_ > cursor_.remaining() / kLeastTensorBytes) {
    return corrupt("the header counts {} tensors, more than the file has room for", n_tensors_);
  }
  return {};
}

Status GgufParser::parse_metadata() {
  for (uint64_t i = 0; i < n_metadata_; ++i) {
    if (auto status = parse_entry(i); !status) return status;
  }
  return {};
}

Status GgufParser::parse_entry(uint64_t i) {
  GgufMetadata& metadata = file_.metadata_;
  GgufMetadata::Entry entry;
  if (!cursor_.read_string(entry.key)) {
    return corrupt("metadata entry {} of {}: the key is cut off by the end of the file", i,
                   n_metadata_);
  }
  if (entry.key.empty() || entry.key.size() > kMaxKeyBytes) {
    return corrupt("metadata entry {} of {}: the key has {} bytes; 1 to {} are allowed", i,
                   n_metadata_, entry.key.size(), kMaxKeyBytes);
  }
  uint32_t type = 0;
  if (!cursor_.read(type)) {
    return corrupt("metadata key {}: the type is cut off by the end of the file",
                   quoted(entry.key));
  }
  if (!cursor_.skip_value(static_cast<GgufType>(type), entry.value)) {
    return corrupt("metadata key {} {}", quoted(entry.key), cursor_.error());
  }
  if (!metadata.index_.emplace(entry.key, metadata.entries_.size()).second) {
    return corrupt("metadata key {} appears twice", quoted(entry.key));
  }
  metadata.entries_.push_back(entry);
  return {};
}

Status GgufParser::parse_tensors() {
  for (uint64_t i = 0; i < n_tensors_; ++i) {
    if (auto status = parse_tensor(i); !status) return status;
  }
  return {};
}

Status GgufParser::parse_tensor(uint64_t i) {
  TensorView tensor;
  if (!cursor_.read_string(tensor.name)) {
    return corrupt("tensor {} of {}: the name is cut off by the end of the file", i, n_tensors_);
  }
  if (tensor.name.empty() || tensor.name.size() > kMaxTensorNameBytes) {
    return corrupt("tensor {} of {}: the name has {} bytes; 1 to {} are allowed", i, n_tensors_,
                   tensor.name.size(), kMaxTensorNameBytes);
  }
  if (auto status = parse_shape(tensor); !status) return status;
  uint64_t offset = 0;
  if (!cursor_.read(tensor.ggml_type) || !cursor_.read(offset)) {
    return corrupt("tensor {}: type and offset are cut off by the end of the file",
                   quoted(tensor.name));
  }
  tensor.type = tensor_type_from_ggml(tensor.ggml_type);
  if (!file_.index_.emplace(tensor.name, file_.tensors_.size()).second) {
    return corrupt("tensor {} appears twice", quoted(tensor.name));
  }
  file_.tensors_.push_back(std::move(tensor));
  offsets_.push_back(offset);
  return {};
}

Status GgufParser::parse_shape(TensorView& tensor) {
  uint32_t n_dims = 0;
  if (!cursor_.read(n_dims)) {
    return corrupt("tensor {}: the shape is cut off by the end of the file", quoted(tensor.name));
  }
  if (n_dims < 1 || n_dims > kMaxDims) {
    return corrupt("tensor {} has {} dimensions; 1 to {} are allowed", quoted(tensor.name), n_dims,
                   kMaxDims);
  }
  tensor.shape.resize(n_dims);
  // No format has less than one bit a value, so products of dimensions can't overflow.
  const uint64_t max_values = std::min<uint64_t>(bytes_.size(), uint64_t{1} << 57) * 8;
  uint64_t n_values = 1;
  for (uint32_t d = 0; d < n_dims; ++d) {
    uint64_t dim = 0;
    if (!cursor_.read(dim)) {
      return corrupt("tensor {}: the shape is cut off by the end of the file", quoted(tensor.name));
    }
    if (dim == 0 || dim > max_values / n_values) {
      return corrupt("tensor {}: dimension {} is {}; it must be at least 1 and fit the file",
                     quoted(tensor.name), d, static_cast<int64_t>(dim));
    }
    n_values *= dim;
    tensor.shape[n_dims - 1 - d] = static_cast<int64_t>(dim);
  }
  return {};
}

Result<uint32_t> GgufParser::alignment() const {
  auto value = file_.metadata_.get_or<uint32_t>("general.alignment", kDefaultAlignment);
  if (!value) return value;
  if (!std::has_single_bit(*value) || *value < kMinAlignment || *value > kMaxAlignment) {
    return corrupt("metadata key 'general.alignment' is {}; it must be a power of two, {} to {}",
                   *value, kMinAlignment, kMaxAlignment);
  }
  return value;
}

Status GgufParser::place_tensors() {
  const auto align = alignment();
  if (!align) return tl::unexpected(align.error());
  const size_t data_begin = (cursor_.position() + *align - 1) / *align * *align;
  for (size_t i = 0; i < file_.tensors_.size(); ++i) {
    if (offsets_[i] % *align != 0) {
      return corrupt("tensor {}: its offset {} is not a multiple of the alignment {}",
                     quoted(file_.tensors_[i].name), offsets_[i], *align);
    }
    if (auto status = place_tensor(file_.tensors_[i], offsets_[i], data_begin); !status) {
      return status;
    }
  }
  return {};
}

Status GgufParser::place_tensor(TensorView& tensor, uint64_t offset, size_t data_begin) {
  const uint64_t room = data_begin > bytes_.size() ? 0 : bytes_.size() - data_begin;
  if (offset > room) {
    return corrupt(
        "tensor {}: its data begins at {}, behind the end of the file at {} (truncated?)",
        quoted(tensor.name), fmt::format("{}+{}", data_begin, offset), bytes_.size());
  }
  const GgmlGeometry* geometry = ggml_geometry(tensor.ggml_type);
  if (geometry == nullptr) return {};  // an error only if the model needs this tensor
  const auto n_in = static_cast<uint64_t>(tensor.shape.back());
  if (n_in % geometry->block_values != 0) {
    return corrupt("tensor {} of type {} has rows of {} values; they must be a multiple of {}",
                   quoted(tensor.name), geometry->name, n_in, geometry->block_values);
  }
  uint64_t n_blocks = n_in / geometry->block_values;
  for (size_t d = 0; d + 1 < tensor.shape.size(); ++d) {
    n_blocks *= static_cast<uint64_t>(tensor.shape[d]);
  }
  if (n_blocks > (room - offset) / geometry->block_bytes) {
    return corrupt(
        "tensor {} {} {}: its data at {} goes beyond the end of the file at {} (truncated?)",
        quoted(tensor.name), geometry->name, shape_name(tensor.shape), data_begin + offset,
        bytes_.size());
  }
  tensor.data = bytes_.subspan(data_begin + static_cast<size_t>(offset),
                               static_cast<size_t>(n_blocks) * geometry->block_bytes);
  return {};
}

Status GgufParser::check_overlaps() const {
  std::vector<const TensorView*> order;
  order.reserve(file_.tensors_.size());
  for (const TensorView& tensor : file_.tensors_) {
    if (!tensor.data.empty()) order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    return a->data.data() < b->data.data();
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->data.data() + order[i - 1]->data.size() > order[i]->data.data()) {
      return corrupt("the data of tensors {} and {} overlap", quoted(order[i - 1]->name),
                     quoted(order[i]->name));
    }
  }
  return {};
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string path) {
  return GgufParser(bytes, std::move(path)).parse();
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  auto mapping = Mapping::open(path);
  if (!mapping) return tl::unexpected(mapping.error());
  auto file = parse(mapping->bytes(), path);
  if (file) file->mapping_ = std::move(*mapping);
  return file;
}

}  // namespace baton::format
