// The real models against their goldens, teacher-forced, for every kernel set and both classes;
// prints a table to set beside that of the goldens' README. Skipped where the models are not in the
// cache.
//
// BATON_GOLDEN_MAX_TOKENS=N leaves out prompts of more than N tokens; without it the slow kernel
// sets (reference, portable) take those of at most 100, and the others take all.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <tuple>

#include "model/golden.h"
#include "model/loaded_model.h"

namespace baton::model {
namespace {

using linalg::KernelClass;
using linalg::KernelSet;

constexpr int kSlowMaxTokens = 100;

/// Where a position's class comes from.
enum class Mode {
  kPrefill,  ///< all positions in the prefill class
  kDecode,   ///< all in the decode class
  kServed,   ///< as an engine does it: whole blocks of the prompt in the prefill class, the rest in
             ///< the decode class
};

std::string mode_name(Mode mode) {
  return mode == Mode::kPrefill ? "prefill" : mode == Mode::kDecode ? "decode" : "served";
}

struct Limits {
  double mean_delta;
  double margin;  ///< the arg max must be the reference's where its margin exceeds this
};

Limits limits(KernelSet kernels, Mode mode) {
  if (kernels == KernelSet::kReference) return {0.001, 0.01};
  if (mode == Mode::kPrefill) return {0.02, 0.25};
  return {0.035, 0.5};
}

struct RealModel {
  const char* name;  ///< of the golden
  const char* file;  ///< in $BATON_CACHE/models
};

using Param = std::tuple<RealModel, KernelSet, Mode>;
class RealModelGolden : public ::testing::TestWithParam<Param> {};

int max_prompt_tokens(KernelSet kernels) {
  if (const char* text = std::getenv("BATON_GOLDEN_MAX_TOKENS")) return std::atoi(text);
  const bool slow = kernels == KernelSet::kReference || kernels == KernelSet::kPortable;
  return slow ? kSlowMaxTokens : 1 << 20;
}

Agreement run_prompt(LoadedModel& model, const GoldenPrompt& prompt, Mode mode) {
  std::vector<TokenId> ids = prompt.ids;
  ids.insert(ids.end(), prompt.greedy_ids.begin(), prompt.greedy_ids.end() - 1);
  const int n_prompt = static_cast<int>(prompt.ids.size());
  const int n = static_cast<int>(ids.size());
  const int prefilled = mode == Mode::kPrefill ? n
                        : mode == Mode::kDecode
                            ? 0
                            : (n_prompt - 1) / kv::kBlockTokens * kv::kBlockTokens;
  model.forget_tables();
  const auto table = model.new_table(n);
  Agreement agreement;
  const auto sink = [&](int position, std::span<const float> logits) {
    compare(logits, prompt.top5[size_t(position - n_prompt + 1)], agreement);
  };
  const int first = n_prompt - 1;
  model.run({.ids = ids,
             .end = prefilled,
             .kernel_class = KernelClass::kPrefill,
             .chunk = 256,
             .first_logits = first},
            table, sink);
  model.run({.ids = ids,
             .begin = prefilled,
             .end = n,
             .kernel_class = KernelClass::kDecode,
             .chunk = 64,
             .first_logits = first},
            table, sink);
  return agreement;
}

TEST_P(RealModelGolden, TeacherForced) {
  const auto& [real, kernels, mode] = GetParam();
  const std::string path = cached_model_path(real.file);
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "skipped: " << path << " is not there";
  const auto golden = read_golden(golden_dir() + "/" + real.name + ".json.gz");
  ASSERT_TRUE(golden) << golden.error().message;
  LoadOptions options{.kernels = kernels, .n_threads = 2};
  options.kv_type = kernels == KernelSet::kReference ? TensorType::kF32 : TensorType::kBF16;
  options.transformer.with_prefill_weights = mode != Mode::kDecode;
  options.transformer.with_decode_weights = mode != Mode::kPrefill;
  const auto model = LoadedModel::load(path, options);
  ASSERT_TRUE(model) << model.error().message;

  Agreement total;
  for (const GoldenPrompt& prompt : *golden) {
    if (static_cast<int>(prompt.ids.size()) > max_prompt_tokens(kernels)) continue;
    total.add(run_prompt(**model, prompt, mode));
  }
  std::printf(
      "%-8s %-9s %-7s positions %5d  mean |Δ| %.5f  max %.3f  misses %3d  at margins up to %.3f\n",
      real.name, std::string(linalg::name(kernels)).c_str(), mode_name(mode).c_str(),
      total.n_positions, total.mean_delta(), total.max_delta, total.n_misses,
      total.max_missed_margin);
  EXPECT_GT(total.n_positions, 0);
  EXPECT_LE(total.mean_delta(), limits(kernels, mode).mean_delta);
  EXPECT_LE(total.max_missed_margin, limits(kernels, mode).margin);
}

std::string param_name(const ::testing::TestParamInfo<Param>& info) {
  const auto& [real, kernels, mode] = info.param;
  return std::string(real.name) + "_" + std::string(linalg::name(kernels)) + "_" + mode_name(mode);
}

constexpr RealModel kSmolLm2{"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"};
constexpr RealModel kGemma3{"gemma3", "gemma-3-270m-q4_k_m.gguf"};

/// The reference kernels have one arithmetic for both classes: one mode is enough.
std::vector<Param> params() {
  std::vector<Param> out;
  for (const RealModel& real : {kSmolLm2, kGemma3}) {
    for (const KernelSet kernels : runnable_kernels()) {
      if (kernels == KernelSet::kReference) {
        out.emplace_back(real, kernels, Mode::kPrefill);
        continue;
      }
      for (const Mode mode : {Mode::kPrefill, Mode::kDecode, Mode::kServed}) {
        out.emplace_back(real, kernels, mode);
      }
    }
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, RealModelGolden, ::testing::ValuesIn(params()), param_name);

}  // namespace
}  // namespace baton::model
