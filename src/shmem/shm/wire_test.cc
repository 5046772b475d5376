#include "shmem/shm/wire.h"

#include <gtest/gtest.h>

#include "testing/corrupt.h"

namespace baton::shmem {
namespace {

Hello full_hello() {
  Hello hello;
  hello.uid = "world-1";
  hello.npes = 6;
  hello.first_pe = 3;
  hello.incarnation = 0x0123456789abcdef;
  hello.shape = {.n_pes = 2, .bytes_per_pe = 1234567, .n_windows = 99};
  hello.member = {.name = "engine 1 (decode)",
                  .descriptor = {{"block size", "16"}, {"dtype", "bf16"}},
                  .info = std::string("\0\xff", 2)};
  return hello;
}

TEST(ShmWire, reads_what_it_writes) {
  const auto parsed = parse_message(encode(full_hello()));
  ASSERT_TRUE(parsed) << parsed.error().message;
  const Hello& hello = std::get<Hello>(*parsed);
  EXPECT_EQ(hello.uid, "world-1");
  EXPECT_EQ(hello.npes, 6);
  EXPECT_EQ(hello.first_pe, 3);
  EXPECT_EQ(hello.incarnation, 0x0123456789abcdef);
  EXPECT_EQ(hello.shape.n_pes, 2);
  EXPECT_EQ(hello.shape.bytes_per_pe, 1234567U);
  EXPECT_EQ(hello.shape.n_windows, 99);
  EXPECT_EQ(hello.member.name, "engine 1 (decode)");
  ASSERT_EQ(hello.member.descriptor.size(), 2U);
  EXPECT_EQ(hello.member.descriptor[1].name, "dtype");
  EXPECT_EQ(hello.member.descriptor[1].value, "bf16");
  EXPECT_EQ(hello.member.info, full_hello().member.info);
  EXPECT_EQ(std::get<Grant>(parse_message(encode(Grant{42})).value()).ticket, 42U);
  const auto refusal =
      std::get<Refusal>(parse_message(encode(Refusal{Refusal::Code::kOverlap, "why"})).value());
  EXPECT_EQ(refusal.code, Refusal::Code::kOverlap);
  EXPECT_EQ(refusal.text, "why");
}

TEST(ShmWire, the_largest_hello_fits_into_a_message) {
  Hello hello = full_hello();
  hello.member.name = std::string(kMaxNameBytes, 'n');
  hello.member.info = std::string(kMaxInfoBytes, 'i');
  hello.member.descriptor.assign(
      kMaxFields, {std::string(kMaxNameBytes, 'f'), std::string(kMaxValueBytes, 'v')});
  ASSERT_TRUE(check_hello(hello));
  EXPECT_TRUE(parse_message(encode(hello)));
  hello.member.descriptor[0].value += 'v';
  EXPECT_FALSE(check_hello(hello));
  EXPECT_FALSE(parse_message(encode(hello)));
}

TEST(ShmWire, every_cut_and_every_longer_message_is_refused) {
  for (const Message& message : {Message(full_hello()), Message(Grant{1}),
                                 Message(Refusal{Refusal::Code::kMismatch, "x"})}) {
    auto bytes = encode(message);
    for (size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_FALSE(parse_message(std::span(bytes).first(n))) << n;
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(parse_message(bytes));
  }
}

TEST(ShmWire, damage_is_refused_or_stays_in_range) {
  for (const auto& damaged : testing::corruptions(encode(full_hello()), 64, 3000, 1)) {
    const auto message = parse_message(damaged.bytes);
    if (!message) continue;
    if (const auto* hello = std::get_if<Hello>(&*message)) {
      EXPECT_TRUE(check_hello(*hello)) << damaged.what;
      EXPECT_LE(hello->first_pe + hello->shape.n_pes, hello->npes) << damaged.what;
    }
  }
}

TEST(ShmWire, another_version_is_told_apart_from_garbage) {
  auto bytes = encode(Grant{1});
  bytes[8] = std::byte{2};
  EXPECT_EQ(parse_message(bytes).error().code, ErrorCode::kUnsupported);
  bytes[0] = std::byte{0};
  EXPECT_EQ(parse_message(bytes).error().code, ErrorCode::kCorrupt);
}

TEST(ShmWire, both_sides_compare_to_the_same_text) {
  Hello a = full_hello(), b = full_hello();
  b.first_pe = 5;
  b.shape.n_pes = 1;
  b.member.name = "engine 2";
  EXPECT_FALSE(compare(a, b));
  b.shape.bytes_per_pe = 1;  // may differ: an engine may have more memory than another
  EXPECT_FALSE(compare(a, b));
  b.member.descriptor[0].value = "32";
  b.uid = "world-2";
  ASSERT_TRUE(compare(a, b));
  EXPECT_EQ(compare(a, b)->text, compare(b, a)->text);
  EXPECT_EQ(compare(a, b)->text,
            "world uid is world-1 in engine 1 (decode) at PE 3-4, but world-2 in engine 2 at PE 5; "
            "block size is 16 in engine 1 (decode) at PE 3-4, but 32 in engine 2 at PE 5");
}

}  // namespace
}  // namespace baton::shmem
