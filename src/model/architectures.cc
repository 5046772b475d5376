#include "model/architectures.h"

#include <algorithm>
#include <array>

namespace baton::model {
namespace {

using linalg::GatedActivation;
using linalg::RopeStyle;

// Sources: src/models/{llama,gemma3}.cpp of llama.cpp and its convert_hf_to_gguf.py (defaults of
// absent keys), modeling_gemma3.py of transformers. The converter permutes llama's q and k rows,
// hence interleaved.
constexpr std::array<Architecture, 2> kArchitectures = {{
    {.name = "llama",
     .rope_style = RopeStyle::kInterleaved,
     .activation = GatedActivation::kSilu,
     .qk_norms = false,
     .post_norms = false,
     .scaled_embedding = false,
     .rope_base = 10000.0,
     .sliding_period = 0,
     .sliding_rope_base = 0.0},
    {.name = "gemma3",
     .rope_style = RopeStyle::kHalf,
     .activation = GatedActivation::kGeluTanh,
     .qk_norms = true,
     .post_norms = true,
     .scaled_embedding = true,
     .rope_base = 1000000.0,
     .sliding_period = 6,
     .sliding_rope_base = 10000.0},
}};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  const auto found = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                  [&](const Architecture& a) { return a.name == name; });
  return found == kArchitectures.end() ? nullptr : &*found;
}

}  // namespace baton::model
