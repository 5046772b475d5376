// How the router picks one engine of several that could take a request.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace baton::router {

/// An engine that could take the request now.
struct Candidate {
  int engine = 0;      ///< index
  int n_requests = 0;  ///< of the router in flight there; exact, never what the engine reports
  /// What the policy weighed, by name; lower is better. Written by pick().
  std::vector<std::pair<std::string_view, double>> score{};
};

/// Owner: the router's core; one for prefill and one for decode. Single-threaded.
class Policy {
 public:
  virtual ~Policy() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// The index in `candidates` (ascending by engine, never empty) of the one to use.
  [[nodiscard]] virtual size_t pick(std::span<Candidate> candidates) = 0;
};

/// "round-robin", "least-loaded"; "auto" and "" = least-loaded. kUnsupported names the ones there
/// are.
[[nodiscard]] Result<std::unique_ptr<Policy>> make_policy(std::string_view name);

}  // namespace baton::router
