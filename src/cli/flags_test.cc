#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/cpu.h"
#include "cli/command.h"
#include "cli/engines_flag.h"
#include "cli/loaded_model.h"
#include "cli/models.h"
#include "cli/serve_options.h"
#include "cli/size.h"
#include "cli/version.h"
#include "cli/version_json.h"

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
  const auto names = [&](auto change, const char* words) {
    const std::string message = refused(change);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  EXPECT_TRUE(check(ServeFlags{}).has_value());
  names([](auto& f) { f.server.port = 70000; }, "--port 70000");
  names([](auto& f) { f.engines = "1P"; }, "--engines '1P'");
  names([](auto& f) { f.engines = "900P900D"; }, "--engines: 1800 engines");
  names([](auto& f) { f.router.policy = "auto"; }, "--policy 'auto': not there yet");
  names([](auto& f) { f.router.policy = "prefix"; }, "--policy 'prefix': not there yet");
  names([](auto& f) { f.router.policy = "best"; }, "--policy 'best': use least-loaded");
  names([](auto& f) { f.engine.kv_dtype = "f16"; }, "--kv-dtype 'f16'");
  names([](auto& f) { f.engine.prefill_activations = "int4"; },
        "--prefill-activations 'int4': use int16 or int8");
  names([](auto& f) { f.engine.max_batch = 0; }, "--max-batch 0");
  names([](auto& f) { f.engine.context = 1; }, "--context 1");
  names([](auto& f) { f.server.api_key_given = true; }, "--api-key");
  names([](auto& f) { f.engine.cpus = "5000"; }, "--cpus");
  names([](auto& f) { f.engine.lease = "0"; }, "--lease '0'");
  names([](auto& f) { f.engine.join_timeout = "soon"; }, "--join-timeout 'soon'");
  names([](auto& f) { f.engine.remote_prefill_min_tokens = "x"; }, "'x'");
}

TEST(Flags, PrefillActivationsAreOfCertainKernels) {
  using linalg::KernelSet;
  const auto parse = [](const char* text, KernelSet kernels) {
    const auto type = parse_activations(text, kernels);
    return type ? std::string(linalg::name(*type)) : type.error().message;
  };
  for (const KernelSet kernels : {KernelSet::kPortable, KernelSet::kAvx512}) {
    EXPECT_EQ(parse("int8", kernels), "int8");
  }
  for (const KernelSet kernels : {KernelSet::kReference, KernelSet::kAvx2, KernelSet::kAmx}) {
    EXPECT_EQ(parse("int16", kernels), "int16");
    EXPECT_EQ(parse("int8", kernels),
              fmt::format("--prefill-activations int8: the {} kernels have no such products; use "
                          "int16, or kernels that have them (avx512 or portable)",
                          linalg::name(kernels)));
  }
}

TEST(Flags, EnginesByRoleAndTheirCpus) {
  ServeFlags flags;
  const int cpu = allowed_cpus().front();
  flags.engine.cpus = std::to_string(cpu);
  const auto one = check(flags);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->roles, std::vector{Role::kBoth});  // the default of one core
  EXPECT_EQ(one->partition.shares[0].cpus, std::vector{cpu});
  flags.engines = "1B1D2P";
  EXPECT_FALSE(check(flags).has_value());
  flags.oversubscribe = true;
  const auto four = check(flags);
  ASSERT_TRUE(four.has_value());
  EXPECT_EQ(four->roles, (std::vector{Role::kPrefill, Role::kPrefill, Role::kDecode, Role::kBoth}));
  EXPECT_EQ(four->partition.npes, 4);
  EXPECT_EQ(four->partition.shares[3].cpus, std::vector{cpu});
}

/// What `serve` hands over is what `engine` understands.
TEST(Flags, AnEngineUnderstandsWhatItIsHanded) {
  EngineFlags flags;
  flags.model = "-strange 'name'.gguf";
  flags.served_model_names = {"a", "b c"};
  flags.context = 77;
  flags.max_batch = 3;
  flags.max_batched_tokens = 99;
  flags.mixed_prefill_tokens = 48;
  flags.kv_memory = "3MiB";
  flags.remote_prefill_min_tokens = "5";
  flags.kv_dtype = "f32";
  flags.prefill_activations = "int8";
  flags.exact_prefix = true;
  flags.packed_cache = "off";
  flags.lease = "2s";
  flags.join_timeout = "3s";
  flags.trace = "t.json";
  flags.log_level = "warn";
  flags.log_format = "json";
  const auto arguments =
      engine_arguments(flags, {"engine 1 (decode)", Role::kDecode, {4, 7}, "9s", 3, 4});
  CLI::App app;
  cli::Run chosen;
  add_engine(app, chosen);
  const CLI::App* engine = app.get_subcommand("engine");
  // CLI11 wants them last to first.
  ASSERT_NO_THROW(app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend())));
  const auto value = [&](const char* flag) { return engine->get_option(flag)->results(); };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(value("--model"), Texts{flags.model});
  EXPECT_EQ(value("--served-model-name"), (Texts{"a", "b c"}));
  EXPECT_EQ(value("--role"), Texts{"decode"});
  EXPECT_EQ(value("--name"), Texts{"engine 1 (decode)"});
  EXPECT_EQ(value("--cpus"), Texts{"4,7"});
  EXPECT_EQ(value("--context"), Texts{"77"});
  EXPECT_EQ(value("--max-batch"), Texts{"3"});
  EXPECT_EQ(value("--max-batched-tokens"), Texts{"99"});
  EXPECT_EQ(value("--mixed-prefill-tokens"), Texts{"48"});
  EXPECT_EQ(value("--kv-memory"), Texts{"3MiB"});
  EXPECT_EQ(value("--remote-prefill-min-tokens"), Texts{"5"});
  EXPECT_EQ(value("--kv-dtype"), Texts{"f32"});
  EXPECT_EQ(value("--prefill-activations"), Texts{"int8"});
  EXPECT_EQ(engine->count("--exact-prefix"), 1U);
  EXPECT_EQ(value("--packed-cache"), Texts{"off"});
  EXPECT_EQ(value("--lease"), Texts{"2s"});
  EXPECT_EQ(value("--join-timeout"), Texts{"3s"});
  EXPECT_EQ(value("--trace"), Texts{"t.json"});
  EXPECT_EQ(value("--log-level"), Texts{"warn"});
  EXPECT_EQ(value("--log-format"), Texts{"json"});
  EXPECT_EQ(value("--drain-timeout"), Texts{"9s"});
  EXPECT_EQ(value("--port"), Texts{"0"});
  EXPECT_EQ(value("--ready-fd"), Texts{"3"});
  EXPECT_EQ(value("--lifeline-fd"), Texts{"4"});
}

TEST(Version, ARouterHasTheKindsOfGemmsOfItsEngines) {
  const auto body = [](const char* phase) {
    return fmt::format(R"({{"version":"1","commit":"c","kernels":"avx512","cpu_features":"f",)"
                       R"("gemms":[{{"name":"head","phase":"decode"}},)"
                       R"({{"name":"qkv","phase":"{}"}}]}})",
                       phase);
  };
  const auto json = nlohmann::json::parse(router_version_json(
      {{"0", body("prefill")}, {"1", body("decode")}, {"2", "nonsense"}, {"3", "[1]"}}));
  EXPECT_EQ(json["version"], kVersion);
  EXPECT_EQ(json["kernels"], "avx512");
  ASSERT_EQ(json["gemms"].size(), 3U);
  EXPECT_EQ(json["gemms"][2]["phase"], "decode");
  ASSERT_EQ(json["engines"].size(), 2U);
  EXPECT_EQ(json["engines"][1]["id"], "1");
  EXPECT_EQ(nlohmann::json::parse(router_version_json({}))["gemms"].size(), 0U);
}

TEST(Models, UnknownNamesListTheKnownOnes) {
  const auto path = resolve_model("no-such-model");
  ASSERT_FALSE(path.has_value());
  EXPECT_EQ(path.error().code, ErrorCode::kNotFound);
  EXPECT_NE(path.error().message.find("smollm2-135m"), std::string::npos);
}

}  // namespace
}  // namespace baton::cli
