#include "format/gguf.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <functional>

#include "testing/corrupt.h"
#include "testing/gguf_writer.h"

namespace baton::format {
namespace {

using testing::GgufWriter;
using Bytes = std::vector<std::byte>;

/// A file with every metadata type and three tensors.
GgufWriter sample(uint32_t version = 3) {
  GgufWriter writer(version);
  writer.add("general.architecture", "llama").add("general.alignment", uint32_t{32});
  writer.add("t.u8", uint8_t{200}).add("t.i8", int8_t{-100});
  writer.add("t.u16", uint16_t{60000}).add("t.i16", int16_t{-30000});
  writer.add("t.u32", uint32_t{4000000000U}).add("t.i32", int32_t{-2000000000});
  writer.add("t.u64", uint64_t{1} << 63).add("t.i64", int64_t{-5000000000});
  writer.add("t.f32", 1.5F).add("t.f64", 2.25).add("t.true", true).add("t.false", false);
  writer.add("t.strings", std::vector<std::string>{"a", "", "äöü"});
  writer.add("t.floats", std::vector<float>{0.5F, -1.0F});
  writer.add("t.ints", std::vector<int32_t>{3, -4, 5});
  writer.add_tensor("vector", std::vector<int64_t>{3}, std::vector<float>{1, 2, 3});
  writer.add_tensor("matrix", std::vector<int64_t>{2, 4},
                    std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  writer.add_tensor("quant", std::vector<int64_t>{2, 32}, 2, Bytes(36));
  return writer;
}

/// Type and count of an array, then `n_payload` zero bytes.
Bytes array_header(uint32_t element_type, uint64_t n, size_t n_payload = 0) {
  Bytes out(12 + n_payload);
  std::memcpy(out.data(), &element_type, 4);
  std::memcpy(out.data() + 4, &n, 8);
  return out;
}

/// An exact-size copy is what makes the sanitizer see a read behind the end.
std::string parse_error(const Bytes& bytes) {
  const auto file = GgufFile::parse(bytes, "model.gguf");
  return file ? "" : file.error().message;
}

void expect_error(const Bytes& bytes, std::string_view part) {
  const std::string message = parse_error(bytes);
  EXPECT_NE(message.find(part), std::string::npos) << "got: " << message << "\nwant: " << part;
  EXPECT_EQ(message.find("model.gguf: "), 0U) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

template <typename T>
T value_of(const GgufFile& file, std::string_view key) {
  auto value = file.metadata().get<T>(key);
  EXPECT_TRUE(value.has_value()) << value.error().message;
  return value ? *value : T{};
}

TEST(Gguf, ReadsEveryMetadataType) {
  for (const uint32_t version : {2U, 3U}) {
    const Bytes bytes = sample(version).bytes();
    const auto file = GgufFile::parse(bytes, "model.gguf");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->version(), version);
    EXPECT_EQ(value_of<std::string_view>(*file, "general.architecture"), "llama");
    EXPECT_EQ(value_of<uint32_t>(*file, "t.u8"), 200U);
    EXPECT_EQ(value_of<int32_t>(*file, "t.i8"), -100);
    EXPECT_EQ(value_of<uint32_t>(*file, "t.u16"), 60000U);
    EXPECT_EQ(value_of<int32_t>(*file, "t.i16"), -30000);
    EXPECT_EQ(value_of<uint32_t>(*file, "t.u32"), 4000000000U);
    EXPECT_EQ(value_of<int32_t>(*file, "t.i32"), -2000000000);
    EXPECT_EQ(value_of<uint64_t>(*file, "t.u64"), uint64_t{1} << 63);
    EXPECT_EQ(value_of<int64_t>(*file, "t.i64"), -5000000000);
    EXPECT_EQ(value_of<float>(*file, "t.f32"), 1.5F);
    EXPECT_EQ(value_of<double>(*file, "t.f64"), 2.25);
    EXPECT_TRUE(value_of<bool>(*file, "t.true"));
    EXPECT_FALSE(value_of<bool>(*file, "t.false"));
    EXPECT_EQ(value_of<std::vector<std::string_view>>(*file, "t.strings"),
              (std::vector<std::string_view>{"a", "", "äöü"}));
    EXPECT_EQ(value_of<std::vector<float>>(*file, "t.floats"), (std::vector<float>{0.5F, -1.0F}));
    EXPECT_EQ(value_of<std::vector<int32_t>>(*file, "t.ints"), (std::vector<int32_t>{3, -4, 5}));
  }
}

TEST(Gguf, StringsAreViewsIntoTheFile) {
  const Bytes bytes = sample().bytes();
  const auto file = GgufFile::parse(bytes, "model.gguf");
  ASSERT_TRUE(file);
  for (const auto text : value_of<std::vector<std::string_view>>(*file, "t.strings")) {
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    EXPECT_TRUE(data >= bytes.data() && data <= bytes.data() + bytes.size());
  }
}

TEST(Gguf, ReadsNestedArrays) {
  Bytes nested = array_header(9, 2);
  for (const uint64_t n : {uint64_t{1}, uint64_t{2}}) {
    const Bytes inner = array_header(5, n, 4 * n);
    nested.insert(nested.end(), inner.begin(), inner.end());
  }
  const Bytes bytes = GgufWriter().add_raw("nested", 9, nested).add("after", uint32_t{7}).bytes();
  const auto file = GgufFile::parse(bytes, "model.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const auto outer = value_of<std::vector<GgufValue>>(*file, "nested");
  ASSERT_EQ(outer.size(), 2U);
  std::vector<int32_t> inner;
  ASSERT_TRUE(outer[1].to(inner));
  EXPECT_EQ(inner, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(value_of<uint32_t>(*file, "after"), 7U);
}

TEST(Gguf, TensorsHaveShapeSlowestFirstAndData) {
  const Bytes bytes = sample().bytes();
  const auto file = GgufFile::parse(bytes, "model.gguf");
  ASSERT_TRUE(file);
  const TensorView* matrix = file->tensor("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->shape, (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(matrix->type, TensorType::kF32);
  ASSERT_EQ(matrix->data.size(), 32U);
  float last = 0;
  std::memcpy(&last, matrix->data.data() + 28, 4);
  EXPECT_EQ(last, 8.0F);
  EXPECT_EQ(file->tensor("quant")->data.size(), 36U);
  EXPECT_EQ(file->tensor("absent"), nullptr);
}

TEST(Gguf, GettersNameKeyAndTypes) {
  const Bytes bytes = sample().bytes();
  const auto file = GgufFile::parse(bytes, "model.gguf");
  ASSERT_TRUE(file);
  const GgufMetadata& metadata = file->metadata();
  EXPECT_EQ(metadata.get<uint32_t>("no.such").error().message,
            "model.gguf: metadata key 'no.such' is missing");
  EXPECT_EQ(metadata.get<uint32_t>("no.such").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(
      metadata.get<uint32_t>("t.strings").error().message,
      "model.gguf: metadata key 't.strings' has type array of string (3 elements), but should "
      "hold an unsigned 32-bit integer");
  // Numbers that don't fit are refused, not wrapped.
  EXPECT_FALSE(metadata.get<uint32_t>("t.i32"));
  EXPECT_FALSE(metadata.get<int32_t>("t.u32"));
  EXPECT_FALSE(metadata.get<int64_t>("t.u64"));
  EXPECT_FALSE(metadata.get<std::vector<uint32_t>>("t.ints"));
  EXPECT_FALSE(metadata.get<bool>("t.u8"));
  EXPECT_FALSE(metadata.get<float>("t.u8"));
  EXPECT_EQ(*metadata.get_or<uint32_t>("no.such", 9), 9U);
  EXPECT_FALSE(metadata.get_or<uint32_t>("t.strings", 9));
}

TEST(Gguf, UnknownTensorTypeIsOnlyReported) {
  GgufWriter writer = sample();
  writer.add_tensor("strange", std::vector<int64_t>{5}, 99, Bytes(32));
  writer.add_tensor("q2", std::vector<int64_t>{256}, 10, Bytes(84));
  const Bytes bytes = writer.bytes();
  const auto file = GgufFile::parse(bytes, "model.gguf");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_FALSE(file->tensor("strange")->type);
  EXPECT_EQ(ggml_type_name(file->tensor("strange")->ggml_type), "type 99");
  EXPECT_FALSE(file->tensor("q2")->type);
  EXPECT_EQ(file->tensor("q2")->data.size(), 84U);
  EXPECT_EQ(ggml_type_name(file->tensor("q2")->ggml_type), "Q2_K");
}

TEST(Gguf, RefusesBadHeaders) {
  const Bytes good = sample().bytes();
  expect_error(Bytes(3), "not a GGUF file");
  expect_error(Bytes(100), "not a GGUF file");
  expect_error(Bytes(good.begin(), good.begin() + 6), "cut off in the version");
  expect_error(Bytes(good.begin(), good.begin() + 20), "cut off in the counts");
  expect_error(GgufWriter(1).bytes(), "GGUF version 1");
  expect_error(GgufWriter(0x03000000).bytes(), "big-endian");
  Bytes many = good;
  many[15] = std::byte{0x7f};  // n_tensors
  expect_error(many, "tensors, more than the file has room for");
  many = good;
  many[23] = std::byte{0xff};  // n_metadata
  expect_error(many, "metadata entries, more than the file has room for");
}

TEST(Gguf, RefusesBadMetadata) {
  const Bytes one(1, std::byte{2});
  const Bytes huge_string = {std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                             std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff}};
  expect_error(GgufWriter().add("k", true).add("k", false).bytes(), "'k' appears twice");
  expect_error(GgufWriter().add("", true).bytes(), "the key has 0 bytes");
  expect_error(GgufWriter().add(std::string(70000, 'x'), true).bytes(), "the key has 70000 bytes");
  expect_error(GgufWriter().add_raw("b", 7, one).bytes(), "'b' holds 2 where a bool");
  expect_error(GgufWriter().add_raw("u", 77, one).bytes(), "'u' has the unknown type 77");
  expect_error(GgufWriter().add_raw("c", 10, one).bytes(), "'c' is cut off");
  expect_error(GgufWriter().add_raw("s", 8, huge_string).bytes(), "'s' is a string that is longer");
  expect_error(GgufWriter().add_raw("a", 9, array_header(4, 1ULL << 62)).bytes(),
               "'a' is an array of 4611686018427387904 elements");
  expect_error(GgufWriter().add_raw("a", 9, array_header(8, 1ULL << 61)).bytes(),
               "'a' is an array of");
  expect_error(GgufWriter().add_raw("a", 9, array_header(50, 0)).bytes(), "unknown type 50");
  expect_error(
      GgufWriter().add_raw("a", 9, array_header(7, 1, 1)).add_raw("n\n\x80", 99, one).bytes(),
      "'n\\x0a\\x80' has the unknown type 99");
  Bytes deep;
  for (int i = 0; i < 1000; ++i) {
    const Bytes header = array_header(9, 1);
    deep.insert(deep.end(), header.begin(), header.end());
  }
  expect_error(GgufWriter().add_raw("d", 9, deep).bytes(), "'d' nests arrays deeper than 8");
  expect_error(GgufWriter().add("general.alignment", uint32_t{0}).bytes(),
               "'general.alignment' is 0");
  expect_error(GgufWriter().add("general.alignment", uint32_t{48}).bytes(), "is 48");
  expect_error(GgufWriter().add("general.alignment", 1.0F).bytes(), "'general.alignment' has type");
}

TEST(Gguf, RefusesBadTensors) {
  const Bytes data(64);
  const auto with = [&](std::string_view name, std::vector<int64_t> shape, uint32_t type) {
    return GgufWriter().add_tensor(name, shape, type, data).bytes();
  };
  expect_error(with("", {4}, 0), "the name has 0 bytes");
  expect_error(with(std::string(65, 'x'), {4}, 0), "the name has 65 bytes");
  expect_error(with("t", {}, 0), "'t' has 0 dimensions");
  expect_error(with("t", {1, 1, 1, 1, 1}, 0), "'t' has 5 dimensions");
  expect_error(with("t", {4, 0}, 0), "'t': dimension 0 is 0");
  expect_error(with("t", {4, -1}, 0), "'t': dimension 0 is -1");
  expect_error(with("t", {int64_t{1} << 8, int64_t{1} << 8}, 0), "'t': dimension 1 is 256");
  expect_error(with("t", {int64_t{1} << 60}, 0), "'t': dimension 0 is 1152921504606846976");
  expect_error(with("t", {17}, 0), "beyond the end of the file");
  expect_error(with("t", {33}, 2), "'t' of type Q4_0 has rows of 33 values");
  expect_error(GgufWriter()
                   .add_tensor("t", std::vector<int64_t>{4}, 0, data)
                   .add_tensor("t", std::vector<int64_t>{4}, 0, data)
                   .bytes(),
               "'t' appears twice");
  // The first says it is longer than its place.
  expect_error(GgufWriter()
                   .add_tensor("a", std::vector<int64_t>{16}, 0, Bytes(32))
                   .add_tensor("b", std::vector<int64_t>{8}, 0, Bytes(32))
                   .bytes(),
               "tensors 'a' and 'b' overlap");
  // Written with another alignment than the file says.
  expect_error(GgufWriter(3, 16)
                   .add("general.alignment", uint32_t{64})
                   .add_tensor("a", std::vector<int64_t>{4}, 0, Bytes(16))
                   .add_tensor("b", std::vector<int64_t>{4}, 0, Bytes(16))
                   .bytes(),
               "'b': its offset 16 is not a multiple of the alignment 64");
}

TEST(Gguf, EveryTruncationIsAnError) {
  const Bytes good = sample().bytes();
  ASSERT_EQ(parse_error(good), "");
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_NE(parse_error(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(n))), "")
        << "cut to " << n << " bytes";
  }
}

/// Uses everything a parsed file offers; a sanitizer sees bad views.
void touch(const GgufFile& file) {
  size_t sum = 0;
  for (const auto& entry : file.metadata().entries()) {
    std::vector<std::string_view> strings;
    std::vector<float> floats;
    std::vector<GgufValue> values;
    if (entry.value.to(strings)) {
      for (const auto text : strings) sum += std::hash<std::string_view>{}(text);
    }
    sum += entry.value.to(floats) + entry.value.to(values);
  }
  for (const TensorView& tensor : file.tensors()) {
    for (const std::byte b : tensor.data) sum += static_cast<size_t>(b);
  }
  volatile size_t sink = sum;
  (void)sink;
}

TEST(Gguf, CorruptVariantsNeverCrash) {
  const Bytes good = sample().bytes();
  int n_refused = 0;
  for (const auto& variant : testing::corruptions(good, good.size() - 128, 3000, 1)) {
    SCOPED_TRACE(variant.what);
    const auto file = GgufFile::parse(variant.bytes, "model.gguf");
    if (file) {
      touch(*file);
    } else {
      ++n_refused;
      EXPECT_EQ(file.error().message.find("model.gguf: "), 0U) << file.error().message;
    }
  }
  EXPECT_GT(n_refused, 1000);
}

TEST(Gguf, OpensFilesAndNamesWhatFails) {
  const std::string path = ::testing::TempDir() + "baton_gguf_test.gguf";
  ASSERT_TRUE(sample().write(path));
  {
    auto file = GgufFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    const GgufFile moved = std::move(*file);
    EXPECT_EQ(moved.tensor("matrix")->data.size(), 32U);
    EXPECT_EQ(value_of<std::string_view>(moved, "general.architecture"), "llama");
    moved.release_pages();
    touch(moved);
  }
  std::remove(path.c_str());
  const auto absent = GgufFile::open(path);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(absent.error().message.find(path), 0U);
  EXPECT_FALSE(GgufFile::open(::testing::TempDir()));
  EXPECT_FALSE(GgufFile::open("/dev/null"));
}

}  // namespace
}  // namespace baton::format
