// The body of GET /version.
#pragma once

#include <string>
#include <vector>

#include "linalg/kernels.h"
#include "model/transformer.h"

namespace baton::cli {

/// Of one engine: build, CPU, kernels, and the implementation of each GEMM.
[[nodiscard]] std::string engine_version_json(const model::Transformer& model,
                                              linalg::KernelSet kernels);

/// Of a router: its own build, kernels and GEMMs as its engines have them (each kind once), and
/// under "engines" the build of each. `engines`: their ids and the bodies of their /version; one
/// that can't be read is left out.
struct EngineVersion {
  std::string id;
  std::string json;
};
[[nodiscard]] std::string router_version_json(const std::vector<EngineVersion>& engines);

}  // namespace baton::cli
