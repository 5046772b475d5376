#include "model/golden.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace baton::model {
namespace {

using nlohmann::json;

Result<std::string> read_gzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return fail(ErrorCode::kNotFound, "{}: can't open", path);
  std::string out;
  char buffer[1 << 16];
  int n = 0;
  while ((n = gzread(file, buffer, sizeof buffer)) > 0) out.append(buffer, size_t(n));
  gzclose(file);
  if (n < 0) return fail(ErrorCode::kCorrupt, "{}: not a gzip file", path);
  return out;
}

GoldenPrompt parse_prompt(const json& in) {
  GoldenPrompt out;
  const bool tiny = in.contains("ids");
  out.name = in.value(tiny ? "kind" : "name", "");
  out.ids = in.at(tiny ? "ids" : "prompt_ids").get<std::vector<TokenId>>();
  out.greedy_ids = in.at("greedy_ids").get<std::vector<TokenId>>();
  for (const json& position : in.at(tiny ? "top5_each" : "top5")) {
    auto& best = out.top5.emplace_back();
    for (const json& pair : position) {
      best.push_back({pair.at(0).get<TokenId>(), pair.at(1).get<float>()});
    }
  }
  if (tiny) {
    out.logits_last = in.at("logits_last").get<std::vector<float>>();
    out.logits_std = in.at("logits_std").get<double>();
  }
  out.prompt_nll = in.at("prompt_nll").get<double>();
  return out;
}

}  // namespace

Result<std::vector<GoldenPrompt>> read_golden(const std::string& path) {
  auto text = read_gzip(path);
  if (!text) return tl::unexpected(text.error());
  try {
    const json file = json::parse(*text);
    std::vector<GoldenPrompt> out;
    for (const json& prompt : file.is_array() ? file : file.at("prompts")) {
      out.push_back(parse_prompt(prompt));
    }
    return out;
  } catch (const json::exception& e) {
    return fail(ErrorCode::kCorrupt, "{}: {}", path, e.what());
  }
}

std::string golden_dir() { return std::string(BATON_SOURCE_DIR) + "/tests/data/golden"; }

void Agreement::add(const Agreement& other) {
  n_positions += other.n_positions;
  sum_delta += other.sum_delta;
  max_delta = std::max(max_delta, other.max_delta);
  n_misses += other.n_misses;
  max_missed_margin = std::max(max_missed_margin, other.max_missed_margin);
}

void compare(std::span<const float> logits, std::span<const TokenLogprob> top5,
             Agreement& agreement) {
  Agreement here;
  here.n_positions = 1;
  here.sum_delta = std::abs(log_probability(logits, top5[0].id) - double{top5[0].logprob});
  here.max_delta = here.sum_delta;
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  if (best != top5[0].id) {
    here.n_misses = 1;
    here.max_missed_margin = double{top5[0].logprob} - double{top5[1].logprob};
  }
  agreement.add(here);
}

double log_probability(std::span<const float> logits, TokenId id) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - max);
  return double{logits[size_t(id)]} - max - std::log(sum);
}

}  // namespace baton::model
