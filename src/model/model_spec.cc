#include "model/model_spec.h"

#include <cmath>

namespace baton::model {

std::vector<double> inverse_frequencies(const RopeSpec& rope) {
  std::vector<double> out(static_cast<size_t>(rope.n_rot / 2));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = std::pow(rope.base, -2.0 * static_cast<double>(i) / rope.n_rot) / rope.linear_factor;
    if (!rope.divisors.empty()) out[i] /= double{rope.divisors[i]};
  }
  return out;
}

}  // namespace baton::model
