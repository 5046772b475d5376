#include "bench/offline_report.h"

#include <algorithm>

#include "bench/json_numbers.h"

namespace baton::bench {
namespace {

double share(double used, double rate) { return rate > 0 ? used / rate : 0; }

/// How near a point comes to what the machine can do.
struct Roofline {
  explicit Roofline(const Point& point, const MachineRates& machine) {
    const double tokens_per_s = point.median();
    bytes_per_s = point.cost.bytes * tokens_per_s;
    flops_per_s = point.cost.flops * tokens_per_s;
    of_memory = share(bytes_per_s, machine.memory_bytes_per_s);
    of_weights = share(bytes_per_s, machine.weights_bytes_per_s);
    of_products = share(flops_per_s, machine.product_flops_per_s());
  }
  double bytes_per_s;
  double flops_per_s;
  double of_memory;
  double of_weights;
  double of_products;
};

std::string_view name(Phase phase) { return phase == Phase::kPrefill ? "prefill" : "decode"; }

std::string machine_lines(const MachineRates& machine, const std::string& product_error) {
  std::string out = fmt::format(
      "read bandwidth     {:.1f} GB/s over {} MiB of memory, {:.1f} GB/s over the {:.0f} MiB that "
      "a "
      "decode step reads of weights\n",
      machine.memory_bytes_per_s * 1e-9, machine.memory_bytes >> 20,
      machine.weights_bytes_per_s * 1e-9, double(machine.weights_bytes) / (1 << 20));
  if (machine.product_flops_per_s() <= 0) {
    return out + fmt::format("oneDNN's own GEMMs  not measured: {}\n",
                             product_error.empty() ? "stopped" : product_error);
  }
  out += fmt::format("oneDNN's own GEMMs {:.0f} GFLOP/s over this model's layers:",
                     machine.product_flops_per_s() * 1e-9);
  for (const auto& [shape, rate] : machine.products) {
    out += fmt::format(" {} {}x{} {:.0f} ({}, {} rows)", shape.name, shape.n_in, shape.n_out,
                       rate.flops_per_s * 1e-9, rate.bf16 ? "bf16" : "float32", rate.n_rows);
    out += &shape == &machine.products.back().shape ? "\n" : ",";
  }
  return out;
}

}  // namespace

std::string offline_table(const OfflineSetting& setting, const OfflineResult& result) {
  std::string out = fmt::format(
      "{} ({}), kernels {}, prefill on {} activations, {} threads, median of {} rounds\n",
      setting.model, setting.architecture, setting.kernels, setting.prefill_activations,
      setting.n_threads, result.n_rounds);
  out += machine_lines(result.machine, result.product_error);
  out += fmt::format("\n{:42}{:>20}{:>31}{:>19}\n", "", "a token costs", "read, share of bandwidth",
                     "share of oneDNN");
  out += fmt::format("{:8}{:>8}{:>8}{:>10}{:>18}{:>7}{:>9}{:>10}{:>9}{:>9}{:>10}{:>8}\n", "phase",
                     "streams", "tokens", "tokens/s", "(of the rounds)", "MB", "GFLOP", "GB/s",
                     "memory", "weights", "GFLOP/s", "rate");
  for (const Point& point : result.points) {
    if (point.tokens_per_s.empty()) continue;
    const auto [low, high] =
        std::minmax_element(point.tokens_per_s.begin(), point.tokens_per_s.end());
    const Roofline roof(point, result.machine);
    const auto percent = [](double part) { return fmt::format("{:.0f} %", 100 * part); };
    out += fmt::format("{:8}{:8}{:8}{:10.1f}{:>18}", name(point.phase), point.n_streams,
                       point.n_tokens, point.median(), fmt::format("({:.1f}-{:.1f})", *low, *high));
    out +=
        fmt::format("{:7.2f}{:9.3f}{:10.1f}{:>9}{:>9}{:10.0f}{:>8}\n", point.cost.bytes * 1e-6,
                    point.cost.flops * 1e-9, roof.bytes_per_s * 1e-9, percent(roof.of_memory),
                    percent(roof.of_weights), roof.flops_per_s * 1e-9, percent(roof.of_products));
  }
  return out;
}

std::string offline_json(const OfflineSetting& setting, const OfflineResult& result) {
  api::JsonWriter json;
  const auto number = [&](std::string_view key, double value) {
    json.key(key);
    write_number(json, value);
  };
  json.begin_object().key("kind").string("offline");
  json.key("model").string(setting.model).key("architecture").string(setting.architecture);
  json.key("kernels").string(setting.kernels);
  json.key("prefill_activations").string(setting.prefill_activations);
  json.key("cpu_features").string(setting.cpu_features);
  json.key("version").string(setting.version).key("threads").integer(setting.n_threads);
  json.key("rounds").integer(result.n_rounds);
  const MachineRates& machine = result.machine;
  json.key("machine").begin_object();
  number("memory_read_bytes_per_s", machine.memory_bytes_per_s);
  number("weights_read_bytes_per_s", machine.weights_bytes_per_s);
  json.key("memory_read_bytes").integer(static_cast<int64_t>(machine.memory_bytes));
  json.key("weights_read_bytes").integer(static_cast<int64_t>(machine.weights_bytes));
  number("gemm_flops_per_s", machine.product_flops_per_s());
  json.key("gemms").begin_array();
  for (const auto& [shape, rate] : machine.products) {
    json.begin_object().key("name").string(shape.name);
    json.key("n_in").integer(shape.n_in).key("n_out").integer(shape.n_out);
    number("flops_per_s", rate.flops_per_s);
    json.key("rows").integer(rate.n_rows).key("type").string(rate.bf16 ? "bf16" : "f32");
    json.key("implementation").string(rate.implementation).end_object();
  }
  json.end_array().end_object().key("points").begin_array();
  for (const Point& point : result.points) {
    if (point.tokens_per_s.empty()) continue;
    const Roofline roof(point, machine);
    json.begin_object().key("phase").string(name(point.phase));
    json.key("streams").integer(point.n_streams).key("tokens").integer(point.n_tokens);
    number("tokens_per_s", point.median());
    number("bytes_per_token", point.cost.bytes);
    number("flops_per_token", point.cost.flops);
    number("of_memory_bandwidth", roof.of_memory);
    number("of_weights_bandwidth", roof.of_weights);
    number("of_gemm_rate", roof.of_products);
    json.key("rounds_tokens_per_s").begin_array();
    for (const double rate : point.tokens_per_s) write_number(json, rate);
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return json.take();
}

}  // namespace baton::bench
