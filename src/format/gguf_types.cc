#include "format/gguf_types.h"

#include <algorithm>
#include <array>

namespace baton::format {
namespace {

// Source: enum ggml_type in ggml.h, block structs in ggml-common.h.
constexpr std::array<GgmlGeometry, 35> kGeometries = {{
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
}};

/// Bytes of a value of fixed size; 0 for strings, arrays and unknown types.
size_t fixed_size(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

}  // namespace

const GgmlGeometry* ggml_geometry(uint32_t ggml_type) {
  const auto found = std::find_if(kGeometries.begin(), kGeometries.end(),
                                  [&](const GgmlGeometry& g) { return g.id == ggml_type; });
  return found == kGeometries.end() ? nullptr : &*found;
}

std::string ggml_type_name(uint32_t ggml_type) {
  const GgmlGeometry* geometry = ggml_geometry(ggml_type);
  return geometry != nullptr ? std::string(geometry->name) : fmt::format("type {}", ggml_type);
}

bool GgufCursor::read_string(std::string_view& out) {
  uint64_t n = 0;
  if (!read(n) || n > remaining()) return false;
  out = {reinterpret_cast<const char*>(bytes_.data() + position_), static_cast<size_t>(n)};
  position_ += static_cast<size_t>(n);
  return true;
}

bool GgufCursor::skip_value(GgufType type, GgufValue& out, int depth) {
  out.type_ = type;
  out.element_type_ = type;
  out.size_ = 1;
  if (type == GgufType::kArray) return skip_array(out, depth);
  if (type == GgufType::kString) {
    std::string_view text;
    if (!read_string(text)) return refuse("is a string that is longer than the file");
    out.data_ = std::as_bytes(std::span(text.data(), text.size()));
    return true;
  }
  const size_t size = fixed_size(type);
  if (size == 0) return refuse("has the unknown type {}", static_cast<uint32_t>(type));
  if (size > remaining()) return refuse("is cut off by the end of the file");
  out.data_ = bytes_.subspan(position_, size);
  if (type == GgufType::kBool) return skip_bools(1);
  position_ += size;
  return true;
}

bool GgufCursor::skip_array(GgufValue& out, int depth) {
  if (depth >= kMaxArrayDepth) return refuse("nests arrays deeper than {}", kMaxArrayDepth);
  uint32_t element_type = 0;
  if (!read(element_type) || !read(out.size_)) return refuse("is cut off by the end of the file");
  out.element_type_ = static_cast<GgufType>(element_type);
  const size_t begin = position_;
  const size_t fixed = fixed_size(out.element_type_);
  const bool variable =
      out.element_type_ == GgufType::kString || out.element_type_ == GgufType::kArray;
  if (fixed == 0 && !variable) return refuse("is an array of the unknown type {}", element_type);
  // The shortest element: a string has its length, an array its type and its length.
  const size_t least = variable ? (out.element_type_ == GgufType::kString ? 8 : 12) : fixed;
  if (out.size_ > remaining() / least) {
    return refuse("is an array of {} elements, more than the file has room for", out.size_);
  }
  if (out.element_type_ == GgufType::kBool) {
    if (!skip_bools(out.size_)) return false;
  } else if (!variable) {
    position_ += static_cast<size_t>(out.size_) * fixed;
  } else {
    GgufValue element;
    for (uint64_t i = 0; i < out.size_; ++i) {
      if (!skip_value(out.element_type_, element, depth + 1)) return false;
    }
  }
  out.data_ = bytes_.subspan(begin, position_ - begin);
  return true;
}

bool GgufCursor::skip_bools(uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    const auto value = static_cast<uint8_t>(bytes_[position_++]);
    if (value > 1) return refuse("holds {} where a bool (0 or 1) should be", value);
  }
  return true;
}

}  // namespace baton::format
