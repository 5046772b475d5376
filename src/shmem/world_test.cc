#include "shmem/world.h"

#include <gtest/gtest.h>

namespace baton::shmem {
namespace {

TEST(World, reads_what_it_prints) {
  for (const Join join : {Join::kFirst, Join::kLater}) {
    const WorldConfig world{.uid = "a-B.9_z", .npes = 6, .pe_start = 4, .join = join};
    const auto read = parse_world(to_json(world));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->uid, "a-B.9_z");
    EXPECT_EQ(read->npes, 6);
    EXPECT_EQ(read->pe_start, 4);
    EXPECT_EQ(read->join, join);
  }
}

TEST(World, join_is_first_unless_said_otherwise) {
  const auto read = parse_world(R"( {"pe_start":0, "uid":"u", "npes":1} )");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->join, Join::kFirst);
}

struct Bad {
  const char* json;
  const char* named;  ///< what the message must contain
};

class BadWorld : public testing::TestWithParam<Bad> {};

TEST_P(BadWorld, is_refused_by_key_and_value) {
  const auto read = parse_world(GetParam().json);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(read.error().message.find(GetParam().named), std::string::npos)
      << read.error().message << " lacks " << GetParam().named;
  EXPECT_NE(read.error().message.find(kWorldVariable), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    worlds, BadWorld,
    testing::Values(
        Bad{"", "expected a JSON object"}, Bad{"[]", "expected a JSON object"},
        Bad{"{", "expected a JSON object"}, Bad{"\xff\xfe{", "expected a JSON object"},
        Bad{R"({"npes":1,"pe_start":0})", "'uid' is missing"},
        Bad{R"({"uid":"u","pe_start":0})", "'npes' is missing"},
        Bad{R"({"uid":"u","npes":1})", "'pe_start' is missing"},
        Bad{R"({"uid":[1,2],"npes":1,"pe_start":0})", "'uid' is [1,2]"},
        Bad{R"({"uid":"","npes":1,"pe_start":0})", "'uid' is \"\""},
        Bad{R"({"uid":"a/b","npes":1,"pe_start":0})", "'uid' is \"a/b\""},
        Bad{R"({"uid":"u","npes":"6","pe_start":0})", "'npes' is \"6\""},
        Bad{R"({"uid":"u","npes":6.0,"pe_start":0})", "'npes' is 6.0"},
        Bad{R"({"uid":"u","npes":0,"pe_start":0})", "'npes' is 0"},
        Bad{R"({"uid":"u","npes":1025,"pe_start":0})", "'npes' is 1025"},
        Bad{R"({"uid":"u","npes":18446744073709551615,"pe_start":0})", "18446744073709551615"},
        Bad{R"({"uid":"u","npes":6,"pe_start":6})",
            "'pe_start' is 6, expected an integer from 0 to 5"},
        Bad{R"({"uid":"u","npes":6,"pe_start":-1})", "'pe_start' is -1"},
        Bad{R"({"uid":"u","npes":6,"pe_start":true})", "'pe_start' is true"},
        Bad{R"({"uid":"u","npes":6,"pe_start":0,"join":"never"})", "'join' is \"never\""},
        Bad{R"({"uid":"u","npes":6,"pe_start":0,"join":1})", "'join' is 1"},
        Bad{R"({"uid":"u","npes":6,"pe_start":0,"ranks":7})", "\"ranks\" with value 7"},
        Bad{R"({"uid":"u","npes":6,"pe_start":0,"npes":7})", "'npes' comes twice"}));

TEST(World, a_long_uid_is_refused) {
  const std::string uid(kMaxUidBytes + 1, 'x');
  EXPECT_FALSE(parse_world(R"({"npes":1,"pe_start":0,"uid":")" + uid + "\"}"));
  EXPECT_TRUE(parse_world(R"({"npes":1,"pe_start":0,"uid":")" + uid.substr(1) + "\"}"));
}

TEST(World, devices_must_fit) {
  const WorldConfig world{.uid = "u", .npes = 6, .pe_start = 4, .join = Join::kFirst};
  EXPECT_TRUE(check_place(world, 1));
  EXPECT_TRUE(check_place(world, 2));
  const auto status = check_place(world, 3);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "world u: 3 devices from PE 4 on don't fit into npes 6");
  EXPECT_FALSE(check_place(world, 0));
  EXPECT_FALSE(check_place({.uid = "u", .npes = 0, .pe_start = 0, .join = Join::kFirst}, 1));
  EXPECT_FALSE(check_place({.uid = "u", .npes = 2, .pe_start = -1, .join = Join::kFirst}, 1));
  EXPECT_FALSE(check_place({.uid = "a b", .npes = 2, .pe_start = 0, .join = Join::kFirst}, 1));
}

}  // namespace
}  // namespace baton::shmem
