#include "linalg/block_codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "linalg/half.h"
#include "linalg/linear.h"

namespace baton::linalg {
namespace {

TensorType type_named(const std::string& text) {
  for (int t = 0; t <= static_cast<int>(TensorType::kQ6_K); ++t) {
    const auto type = static_cast<TensorType>(t);
    if (info(type).name == text) return type;
  }
  ADD_FAILURE() << "no type " << text;
  return TensorType::kF32;
}

// One line of dequant_vectors.txt (its head says what is in it).
struct Vector {
  TensorType type;
  std::vector<std::byte> bytes;
  std::vector<uint32_t> bits;
};

std::vector<Vector> read_vectors() {
  std::ifstream file(BATON_SOURCE_DIR "/tests/data/linalg/dequant_vectors.txt");
  std::vector<Vector> vectors;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string type, block, values;
    words >> type >> block >> values;
    Vector v{type_named(type), {}, {}};
    for (size_t i = 0; i < block.size(); i += 2) {
      v.bytes.push_back(static_cast<std::byte>(std::stoul(block.substr(i, 2), nullptr, 16)));
    }
    for (size_t i = 0; i < values.size(); i += 8) {
      v.bits.push_back(static_cast<uint32_t>(std::stoul(values.substr(i, 8), nullptr, 16)));
    }
    vectors.push_back(std::move(v));
  }
  return vectors;
}

TEST(Dequantize, EqualsLibggmlBitForBit) {
  std::map<std::string_view, int> n_checked;
  for (const Vector& v : read_vectors()) {
    const std::string_view type = info(v.type).name;
    std::vector<float> values(v.bits.size());
    ASSERT_EQ(v.bytes.size(), row_bytes(v.type, static_cast<int64_t>(values.size()))) << type;
    dequantize(v.type, v.bytes.data(), static_cast<int64_t>(values.size()), values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), v.bits[i]) << type << " value " << i;
    }
    ++n_checked[type];
  }
  EXPECT_EQ(n_checked.size(), 10U);  // all but F32
  for (const auto& [type, n] : n_checked) EXPECT_GE(n, 4) << type;
}

TEST(Dequantize, SeveralBlocksAreTheBlocksOneByOne) {
  std::map<TensorType, std::vector<std::byte>> bytes;
  std::map<TensorType, std::vector<uint32_t>> bits;
  for (const Vector& v : read_vectors()) {
    bytes[v.type].insert(bytes[v.type].end(), v.bytes.begin(), v.bytes.end());
    bits[v.type].insert(bits[v.type].end(), v.bits.begin(), v.bits.end());
  }
  for (const auto& [type, all] : bytes) {
    std::vector<float> values(bits[type].size());
    dequantize(type, all.data(), static_cast<int64_t>(values.size()), values.data());
    EXPECT_EQ(std::memcmp(values.data(), bits[type].data(), values.size() * 4), 0)
        << info(type).name;
  }
}

TEST(Dequantize, Float32IsACopy) {
  const std::vector<float> in = {0.0F, -0.0F, 1.5F, std::numeric_limits<float>::denorm_min()};
  std::vector<float> out(in.size());
  dequantize(TensorType::kF32, reinterpret_cast<const std::byte*>(in.data()), 4, out.data());
  EXPECT_EQ(std::memcmp(in.data(), out.data(), 16), 0);
}

TEST(BlockCodec, CodesStayInTheRangeOfTheirBits) {
  for (const Vector& v : read_vectors()) {
    const CodeInfo code = code_info(v.type);
    if (code.group_values == 0) continue;
    BlockCodes block;
    unpack_block(v.type, v.bytes.data(), block);
    const int low = code.has_min ? 0 : -(1 << (code.bits - 1));
    for (int i = 0; i < info(v.type).block_values; ++i) {
      const int q = block.codes[static_cast<size_t>(i)];
      ASSERT_GE(q, low) << info(v.type).name;
      ASSERT_LT(q, low + (1 << code.bits)) << info(v.type).name;
    }
  }
}

TEST(Half, EveryPatternConvertsExactly) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = half_to_float(static_cast<uint16_t>(h));
    const int exponent = static_cast<int>(h >> 10 & 31);
    const int fraction = static_cast<int>(h & 1023);
    const double sign = (h & 0x8000) != 0 ? -1 : 1;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(f), fraction != 0);
      ASSERT_EQ(std::isinf(f), fraction == 0);
    } else {
      const double want =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(static_cast<double>(f), sign * want) << h;
      ASSERT_EQ(std::signbit(f), sign < 0) << h;
    }
  }
}

TEST(Half, Bf16RoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = bf16_to_float(static_cast<uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(f))));
    } else {
      ASSERT_EQ(float_to_bf16(f), h);
    }
  }
  const auto round = [](uint32_t bits) { return float_to_bf16(std::bit_cast<float>(bits)); };
  EXPECT_EQ(round(0x3F808000), 0x3F80);  // a tie goes to the even one
  EXPECT_EQ(round(0x3F818000), 0x3F82);
  EXPECT_EQ(round(0x3F808001), 0x3F81);
  EXPECT_EQ(round(0x7F7FFFFF), 0x7F80);  // beyond the largest: infinity
  EXPECT_EQ(round(0x7F800001), 0x7FC0);  // a NaN does not become infinity
}

}  // namespace
}  // namespace baton::linalg
