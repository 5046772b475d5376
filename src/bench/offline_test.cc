#include "bench/offline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/offline_report.h"
#include "model/golden.h"
#include "model/loaded_model.h"

namespace baton::bench {
namespace {

/// A model of a few layers, packed for a context of its own.
struct Tiny {
  explicit Tiny(linalg::KernelSet kernels) : context{kernels, pool, workspace} {
    auto file = format::GgufFile::open(model::golden_dir() + "/tiny/quant/Q4_1.gguf");
    auto checkpoint =
        model::read_checkpoint(std::make_shared<const format::GgufFile>(std::move(*file)));
    model = std::move(*model::Transformer::create(context, std::move(*checkpoint), {}));
  }
  ThreadPool pool{{.n_threads = 2, .cpus = {}}};
  linalg::Workspace workspace;
  linalg::Context context;
  std::unique_ptr<model::Transformer> model;
};

OfflineOptions small() {
  OfflineOptions options;
  options.prompts = {40, 100};
  options.batches = {1, 3};
  options.contexts = {20};
  options.n_rounds = 2;
  options.n_steps = 3;
  options.chunk = 32;
  options.prefill_min_tokens = 64;
  options.read_bytes = 1 << 20;
  return options;
}

/// A product of 10 x n_out.
void add_product(MachineRates& machine, int64_t n_out, double flops_per_s) {
  machine.products.emplace_back();
  machine.products.back().shape.n_in = 10;
  machine.products.back().shape.n_out = n_out;
  machine.products.back().rate.flops_per_s = flops_per_s;
}

TEST(Offline, EveryPointIsMeasuredInEveryRound) {
  for (const linalg::KernelSet kernels : model::runnable_kernels()) {
    Tiny tiny(kernels);
    int n_progress = 0;
    const SystemClock clock;
    const auto result = run_offline(tiny.context, *tiny.model, small(), clock,
                                    {.stopped = {}, .on_progress = [&](int done, int total) {
                                       EXPECT_EQ(done, ++n_progress);
                                       EXPECT_EQ(total, 2 * (4 + 1));
                                     }});
    ASSERT_TRUE(result.has_value()) << result.error().message;
    EXPECT_EQ(result->n_rounds, 2);
    EXPECT_EQ(n_progress, 10);
    ASSERT_EQ(result->points.size(), 4U);
    EXPECT_EQ(result->points[0].n_tokens, 40);
    EXPECT_EQ(result->points[3].n_streams, 3);
    EXPECT_EQ(result->points[3].n_generated, 9);
    for (const Point& point : result->points) {
      ASSERT_EQ(point.tokens_per_s.size(), 2U);
      EXPECT_GT(point.median(), 0);
      EXPECT_GT(point.cost.bytes, 0);
      EXPECT_GT(point.cost.flops, 0);
    }
    // Three streams share what is read of the weights.
    EXPECT_LT(result->points[3].cost.bytes, result->points[2].cost.bytes);
    EXPECT_GT(result->machine.memory_bytes_per_s, 0);
    EXPECT_GT(result->machine.weights_bytes_per_s, 0);
    EXPECT_GT(result->machine.product_flops_per_s(), 0) << result->product_error;
  }
}

TEST(Offline, StopsBetweenMeasurements) {
  Tiny tiny(linalg::KernelSet::kPortable);
  int done = 0;
  const SystemClock clock;
  const auto result = run_offline(
      tiny.context, *tiny.model, small(), clock,
      {.stopped = [&] { return done >= 2; }, .on_progress = [&](int n, int) { done = n; }});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->n_rounds, 0);
  EXPECT_EQ(result->points[0].tokens_per_s.size(), 1U);
  EXPECT_TRUE(result->points[1].tokens_per_s.empty());
  // What was measured is reported, the rest left out.
  const std::string table = offline_table({}, *result);
  EXPECT_NE(table.find("prefill "), std::string::npos);
  EXPECT_EQ(table.find("decode  "), std::string::npos);
}

TEST(Offline, RefusesWhatDoesNotFit) {
  Tiny tiny(linalg::KernelSet::kPortable);
  const auto message = [&](auto change) {
    OfflineOptions options = small();
    change(options);
    const auto result = run_offline(tiny.context, *tiny.model, options, SystemClock(), {});
    return result ? std::string("accepted") : result.error().message;
  };
  const int most = tiny.model->context_length();
  EXPECT_NE(message([&](auto& o) { o.prompts = {most + 1}; }).find("--prompt"), std::string::npos);
  EXPECT_NE(message([&](auto& o) { o.contexts = {most}; }).find("--context"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.available_bytes = 1 << 20; }).find("--batch 3"),
            std::string::npos);
  EXPECT_EQ(message([&](auto& o) { o.prompts = {most}; }), "accepted");
}

TEST(Offline, TheJsonHasWhatTheTableSays) {
  OfflineResult result;
  result.n_rounds = 3;
  result.machine.memory_bytes_per_s = 10e9;
  result.machine.weights_bytes_per_s = 20e9;
  add_product(result.machine, 20, 1e12);
  add_product(result.machine, 60, 1e12);
  result.points.push_back({Phase::kDecode, 8, 512, 128, {2e9, 5e6}, {100, 300, 200}});
  const auto json = nlohmann::json::parse(
      offline_json({"m \"1\"", "llama", "amx", "int16", "avx2", "v", 2}, result));
  EXPECT_EQ(json["model"], "m \"1\"");
  EXPECT_EQ(json["prefill_activations"], "int16");
  EXPECT_DOUBLE_EQ(json["machine"]["gemm_flops_per_s"], 1e12);
  const auto& point = json["points"][0];
  EXPECT_EQ(point["tokens_per_s"], 200);
  EXPECT_DOUBLE_EQ(point["of_memory_bandwidth"], 0.1);
  EXPECT_DOUBLE_EQ(point["of_weights_bandwidth"], 0.05);
  EXPECT_DOUBLE_EQ(point["of_gemm_rate"], 0.4);
  const std::string table = offline_table({}, result);
  EXPECT_NE(
      table.find("(100.0-300.0)   5.00    2.000       1.0     10 %      5 %       400    40 %"),
      std::string::npos)
      << table;
}

/// Layers' products take their times one after the other.
TEST(Offline, RatesOfProductsAddUpAsTimes) {
  MachineRates machine;
  add_product(machine, 10, 3e9);
  add_product(machine, 10, 1e9);
  EXPECT_DOUBLE_EQ(machine.product_flops_per_s(), 1.5e9);
  machine.products[0].rate.flops_per_s = 0;
  EXPECT_EQ(machine.product_flops_per_s(), 0);
}

}  // namespace
}  // namespace baton::bench
