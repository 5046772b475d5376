#include <gtest/gtest.h>

#include "cli/engines_flag.h"
#include "cli/models.h"
#include "cli/serve_options.h"
#include "cli/size.h"

namespace baton::cli {
namespace {

TEST(Flags, SizesAndTimes) {
  EXPECT_EQ(parse_bytes("--f", "2GiB").value(), uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("--f", "512M").value(), uint64_t{512} << 20);
  EXPECT_EQ(parse_bytes("--f", "1.5KiB").value(), 1536U);
  EXPECT_EQ(parse_bytes("--f", "77").value(), 77U);
  for (const char* bad : {"", "GiB", "-1GiB", "1Gib", "1 GiB", "nan", "inf", "1e300", "2GB2"}) {
    const auto result = parse_bytes("--kv-memory", bad);
    ASSERT_FALSE(result.has_value()) << bad;
    EXPECT_NE(result.error().message.find("--kv-memory"), std::string::npos);
  }
  EXPECT_EQ(parse_duration("--f", "30s").value().count(), 30000);
  EXPECT_EQ(parse_duration("--f", "250ms").value().count(), 250);
  EXPECT_EQ(parse_duration("--f", "2").value().count(), 2000);
  for (const char* bad : {"", "s", "-1s", "1d", "1000h"})
    EXPECT_FALSE(parse_duration("--f", bad).has_value()) << bad;
}

TEST(Flags, Engines) {
  EXPECT_EQ(parse_engines("1B")->both, 1);
  const auto mix = parse_engines("2P1D3B");
  ASSERT_TRUE(mix.has_value());
  EXPECT_EQ(mix->prefill, 2);
  EXPECT_EQ(mix->decode, 1);
  EXPECT_EQ(mix->both, 3);
  for (const char* bad : {"", "B", "0B", "1X", "1P", "1D", "1B1B", "1b", "-1B", "99999B", "1B "}) {
    EXPECT_FALSE(parse_engines(bad).has_value()) << bad;
  }
}

TEST(Flags, ServeNamesTheFlagAndTheValue) {
  const auto refused = [](auto change) {
    ServeFlags flags;
    change(flags);
    const auto options = check(flags);
    return options ? std::string("accepted") : options.error().message;
  };
  EXPECT_TRUE(check({}).has_value());
  EXPECT_NE(refused([](auto& f) { f.port = 70000; }).find("--port 70000"), std::string::npos);
  EXPECT_NE(refused([](auto& f) { f.engines = "1P1D"; }).find("--engines '1P1D'"),
            std::string::npos);
  EXPECT_NE(refused([](auto& f) { f.kv_dtype = "f16"; }).find("--kv-dtype 'f16'"),
            std::string::npos);
  EXPECT_NE(refused([](auto& f) { f.max_batch = 0; }).find("--max-batch 0"), std::string::npos);
  EXPECT_NE(refused([](auto& f) { f.context = 1; }).find("--context 1"), std::string::npos);
  EXPECT_NE(refused([](auto& f) { f.api_key_given = true; }).find("--api-key"), std::string::npos);
  EXPECT_NE(refused([](auto& f) { f.cpus = "5000"; }).find("--cpus"), std::string::npos);
  EXPECT_NE(refused([](auto& f) { f.remote_prefill_min_tokens = "x"; }).find("'x'"),
            std::string::npos);
}

TEST(Models, UnknownNamesListTheKnownOnes) {
  const auto path = resolve_model("no-such-model");
  ASSERT_FALSE(path.has_value());
  EXPECT_EQ(path.error().code, ErrorCode::kNotFound);
  EXPECT_NE(path.error().message.find("smollm2-135m"), std::string::npos);
}

}  // namespace
}  // namespace baton::cli
