// What distinguishes the architectures that GGUF files name, as data. Private to src/model.
#pragma once

#include <span>
#include <string_view>

#include "linalg/ops.h"

namespace baton::model {

/// The facts that the file's metadata does not carry, because the name implies them.
struct Architecture {
  std::string_view name;  ///< general.architecture
  linalg::RopeStyle rope_style;
  linalg::GatedActivation activation;
  bool qk_norms;
  bool post_norms;
  bool scaled_embedding;  ///< embedding times sqrt(hidden)
  double rope_base;       ///< where rope.freq_base is absent
  int sliding_period;     ///< of n layers the last sees everything, the others a window; 0 = none
                          ///< slides
  double sliding_rope_base;  ///< of the sliding layers, where rope.freq_base_swa is absent
};

[[nodiscard]] std::span<const Architecture> architectures();
/// nullptr if unknown.
[[nodiscard]] const Architecture* find_architecture(std::string_view name);

}  // namespace baton::model
