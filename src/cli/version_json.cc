#include "cli/version_json.h"

#include <nlohmann/json.hpp>
#include <set>

#include "api/json_writer.h"
#include "base/cpu.h"
#include "cli/version.h"

namespace baton::cli {
namespace {

void write_build(api::JsonWriter& json) {
  json.key("version").string(kVersion).key("commit").string(kCommit);
  json.key("build").string(kBuildFlags);
  json.key("cpu_features").string(describe(cpu_features()));
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::string engine_version_json(const model::Transformer& model, linalg::KernelSet kernels) {
  api::JsonWriter json;
  json.begin_object();
  write_build(json);
  json.key("kernels").string(linalg::name(kernels));
  json.key("prefill_activations").string(linalg::name(model.prefill_activations()));
  json.key("weights").string(model.weights_cached() ? "from the cache" : "packed");
  json.key("gemms").begin_array();
  for (const auto& gemm : model.gemms()) {
    const bool prefill = gemm.kernel_class == linalg::KernelClass::kPrefill;
    json.begin_object().key("name").string(gemm.name);
    json.key("phase").string(prefill ? "prefill" : "decode");
    json.key("implementation").string(gemm.implementation);
    json.key("matrices").integer(gemm.n_matrices);
    json.key("bytes").integer(static_cast<int64_t>(gemm.bytes)).end_object();
  }
  json.end_array().end_object();
  return json.take();
}

std::string router_version_json(const std::vector<EngineVersion>& engines) {
  std::string kernels;
  std::set<std::string> seen;
  api::JsonWriter gemms;
  api::JsonWriter builds;
  gemms.begin_array();
  builds.begin_array();
  for (const EngineVersion& engine : engines) {
    const auto body = nlohmann::json::parse(engine.json, nullptr, /*allow_exceptions=*/false);
    if (!body.is_object()) continue;
    if (kernels.empty()) kernels = text_of(body, "kernels");
    builds.begin_object().key("id").string(engine.id);
    for (const char* key :
         {"version", "commit", "cpu_features", "kernels", "prefill_activations", "weights"}) {
      builds.key(key).string(text_of(body, key));
    }
    builds.end_object();
    if (!body.contains("gemms") || !body["gemms"].is_array()) continue;
    for (const auto& gemm : body["gemms"]) {
      const std::string one = gemm.dump();
      if (seen.insert(one).second) gemms.raw(one);
    }
  }
  gemms.end_array();
  builds.end_array();

  api::JsonWriter json;
  json.begin_object();
  write_build(json);
  json.key("kernels").string(kernels);
  json.key("gemms").raw(gemms.take());
  json.key("engines").raw(builds.take()).end_object();
  return json.take();
}

}  // namespace baton::cli
