// The tiny models against their goldens, for every kernel set and class: architectures,
// quantisations.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>

#include "model/golden.h"
#include "model/loaded_model.h"

namespace baton::model {
namespace {

using linalg::KernelClass;
using linalg::KernelSet;

/// What an arithmetic may differ by: the tolerances of the goldens' README.
struct Tolerance {
  double logits;  ///< max |Δlogit| after the last token, in standard deviations of the logits
  double margin;  ///< the arg max must be the reference's where its margin exceeds this
  double nll_relative;
  double nll_per_token;
};

Tolerance tolerance(KernelSet kernels, KernelClass kernel_class) {
  if (kernels == KernelSet::kReference) return {1e-3, 0.01, 1e-4, 1e-4};
  if (kernel_class == KernelClass::kPrefill) return {6e-2, 0.15, 0.01, 0.02};
  return {0.3, 0.6, 0.02, 0.04};
}

struct Files {
  std::string model;
  std::string golden;
};

Files files_of(const std::string& name) {
  const std::string tiny = golden_dir() + "/tiny/";
  if (name.rfind("quant_", 0) == 0) {
    const std::string stem = tiny + "quant/" + name.substr(6);
    return {stem + ".gguf", stem + ".golden.json.gz"};
  }
  return {tiny + name + "/model-bf16.gguf", tiny + name + "/golden.json.gz"};
}

using Param = std::tuple<std::string, KernelSet, KernelClass>;
class TinyGolden : public ::testing::TestWithParam<Param> {};

void check_prompt(LoadedModel& model, const GoldenPrompt& prompt, KernelClass kernel_class,
                  const Tolerance& allowed) {
  const auto n_vocab = size_t(model.n_vocab());
  const std::vector<float> logits = model.all_logits(prompt.ids, kernel_class, 256);
  ASSERT_EQ(logits.size(), prompt.ids.size() * n_vocab);
  const auto row = [&](size_t i) { return std::span(logits).subspan(i * n_vocab, n_vocab); };

  double max_error = 0.0;
  const auto last = row(prompt.ids.size() - 1);
  for (size_t v = 0; v < n_vocab; ++v) {
    max_error = std::max(max_error, std::abs(double{last[v]} - double{prompt.logits_last[v]}));
  }
  EXPECT_LE(max_error / prompt.logits_std, allowed.logits);

  Agreement agreement;
  double nll = 0.0;
  for (size_t i = 0; i < prompt.ids.size(); ++i) {
    compare(row(i), prompt.top5[i], agreement);
    if (i + 1 < prompt.ids.size()) nll -= log_probability(row(i), prompt.ids[i + 1]);
  }
  EXPECT_LE(agreement.max_missed_margin, allowed.margin) << agreement.n_misses << " misses";
  EXPECT_LE(std::abs(nll - prompt.prompt_nll),
            std::max(allowed.nll_relative * prompt.prompt_nll,
                     allowed.nll_per_token * static_cast<double>(prompt.ids.size())));
}

TEST_P(TinyGolden, MatchesTeacherForced) {
  const auto& [name, kernels, kernel_class] = GetParam();
  const Files files = files_of(name);
  const auto golden = read_golden(files.golden);
  ASSERT_TRUE(golden) << golden.error().message;
  LoadOptions options{.kernels = kernels, .n_threads = 2};
  options.kv_type = kernels == KernelSet::kReference ? TensorType::kF32 : TensorType::kBF16;
  const auto model = LoadedModel::load(files.model, options);
  ASSERT_TRUE(model) << model.error().message;
  for (const GoldenPrompt& prompt : *golden) {
    SCOPED_TRACE(prompt.name + " " + std::to_string(prompt.ids.size()));
    (*model)->forget_tables();
    check_prompt(**model, prompt, kernel_class, tolerance(kernels, kernel_class));
  }
}

std::string param_name(const ::testing::TestParamInfo<Param>& info) {
  const auto& [name, kernels, kernel_class] = info.param;
  return name + "_" + std::string(linalg::name(kernels)) +
         (kernel_class == KernelClass::kPrefill ? "_prefill" : "_decode");
}

INSTANTIATE_TEST_SUITE_P(
    All, TinyGolden,
    ::testing::Combine(::testing::Values("llama", "gemma3", "llama_rope_linear",
                                         "llama_rope_llama3", "quant_Q4_0", "quant_Q4_1",
                                         "quant_Q5_0", "quant_Q5_1", "quant_Q8_0", "quant_Q4_K_M",
                                         "quant_Q4_K_S", "quant_Q5_K_S", "quant_Q6_K"),
                       ::testing::ValuesIn(runnable_kernels()),
                       ::testing::Values(KernelClass::kPrefill, KernelClass::kDecode)),
    param_name);

}  // namespace
}  // namespace baton::model
