#include "router/policy.h"

#include <algorithm>

namespace baton::router {
namespace {

/// The fewest requests in flight; the lowest index wins a tie.
class LeastLoaded final : public Policy {
 public:
  std::string_view name() const override { return "least-loaded"; }
  size_t pick(std::span<Candidate> candidates) override {
    for (Candidate& one : candidates) {
      one.score.emplace_back("requests", static_cast<double>(one.n_requests));
    }
    const auto least = std::min_element(
        candidates.begin(), candidates.end(),
        [](const Candidate& a, const Candidate& b) { return a.n_requests < b.n_requests; });
    return static_cast<size_t>(least - candidates.begin());
  }
};

/// The next engine after the last one, whatever their load.
class RoundRobin final : public Policy {
 public:
  std::string_view name() const override { return "round-robin"; }
  size_t pick(std::span<Candidate> candidates) override {
    const auto next = std::find_if(candidates.begin(), candidates.end(),
                                   [this](const Candidate& one) { return one.engine > last_; });
    const size_t chosen =
        next == candidates.end() ? 0 : static_cast<size_t>(next - candidates.begin());
    for (size_t i = 0; i < candidates.size(); ++i) {
      const size_t turns = (i + candidates.size() - chosen) % candidates.size();
      candidates[i].score.emplace_back("turns", static_cast<double>(turns));
    }
    last_ = candidates[chosen].engine;
    return chosen;
  }

 private:
  int last_ = -1;
};

}  // namespace

Result<std::unique_ptr<Policy>> make_policy(std::string_view name) {
  if (name.empty() || name == "auto" || name == "least-loaded") {
    return std::make_unique<LeastLoaded>();
  }
  if (name == "round-robin") return std::make_unique<RoundRobin>();
  return fail(ErrorCode::kUnsupported,
              "policy '{}' does not exist (yet); there are auto, least-loaded and round-robin",
              name);
}

}  // namespace baton::router
