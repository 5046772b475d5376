#include "bench/cost.h"

#include <algorithm>
#include <utility>

namespace baton::bench {

WeightBytes weight_bytes(std::span<const model::GemmInfo> gemms) {
  WeightBytes out;
  for (const model::GemmInfo& gemm : gemms) {
    const auto bytes = static_cast<double>(gemm.bytes);
    if (gemm.name == "head") {
      out.head += bytes;
    } else if (gemm.kernel_class == linalg::KernelClass::kDecode) {
      out.decode_layers += bytes;
    } else {
      (gemm.name == "qkv" ? out.prefill_qkv : out.prefill_rest) += bytes;
    }
  }
  return out;
}

CostModel::CostModel(model::ModelSpec spec, const WeightBytes& weights, int kv_value_bytes)
    : spec_(std::move(spec)), weights_(weights), kv_value_bytes_(kv_value_bytes) {}

double CostModel::qkv_values() const {
  return static_cast<double>(spec_.qkv_width()) * spec_.hidden;
}

double CostModel::layer_values() const {
  return static_cast<double>(spec_.q_width()) * spec_.hidden + 3.0 * spec_.hidden * spec_.ffn;
}

double CostModel::visible(int begin, int end, int window) {
  // Position p sees p + 1 positions, or the last `window` of them.
  const auto sum_below = [](double n) { return n * (n + 1) / 2; };  // 1 + … + n
  if (window == 0 || window >= end) return sum_below(end) - sum_below(begin);
  const int full = std::max(begin, window);
  double sum = static_cast<double>(window) * (end - full);
  if (begin < window) sum += sum_below(window) - sum_below(begin);
  return sum;
}

Cost CostModel::sequence(int begin, int end, int n_last) const {
  const double token_bytes = 2.0 * static_cast<double>(spec_.kv_width()) * kv_value_bytes_;
  Cost out;
  for (int layer = 0; layer < spec_.n_layers(); ++layer) {
    const int window = spec_.layers[static_cast<size_t>(layer)].window;
    const bool last = layer + 1 == spec_.n_layers();
    const int first = last ? end - n_last : begin;  // what attends
    out.bytes += token_bytes * (end - begin);       // written
    if (first == end) continue;
    const int seen_from = window == 0 ? 0 : std::max(0, first + 1 - window);
    out.bytes += token_bytes * (end - seen_from);
    // q·k and the weighted sum of v: 2 * head_dim each, for every head and visible position.
    out.flops += 4.0 * static_cast<double>(spec_.q_width()) * visible(first, end, window);
  }
  return out;
}

Cost CostModel::decode_step(int n_streams, int context) const {
  const double values = spec_.n_layers() * (qkv_values() + layer_values()) +
                        static_cast<double>(spec_.hidden) * spec_.n_vocab;
  Cost out{2.0 * values * n_streams, weights_.decode_layers + weights_.head};
  const Cost one = sequence(context, context + 1, 1);
  out += {one.flops * n_streams, one.bytes * n_streams};
  return out;
}

Cost CostModel::prefill_chunk(int begin, int end) const {
  const double n = end - begin;
  const double n_layers = spec_.n_layers();
  Cost out{2.0 * n * (n_layers * qkv_values() + (n_layers - 1) * layer_values()),
           weights_.prefill_qkv + weights_.prefill_rest * (n_layers - 1) / n_layers};
  out += sequence(begin, end, 0);
  return out;
}

Cost CostModel::tail(int begin, int end) const {
  const double n = end - begin;
  const double n_layers = spec_.n_layers();
  const double head = static_cast<double>(spec_.hidden) * spec_.n_vocab;
  Cost out{2.0 * (n * (n_layers * qkv_values() + (n_layers - 1) * layer_values()) + layer_values() +
                  head),
           weights_.decode_layers + weights_.head};
  out += sequence(begin, end, 1);
  return out;
}

}  // namespace baton::bench
