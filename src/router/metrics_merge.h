// One Prometheus text out of those of the router and of its engines.
#pragma once

#include <string>
#include <vector>

namespace baton::router {

/// What an engine answered to GET /metrics.
struct EngineMetrics {
  std::string id;
  std::string role;   ///< empty = not known
  std::string text;   ///< empty if it didn't answer
  std::string error;  ///< why not
};

/// The router's series as they are, then those of the engines with labels `engine` and `role`: each
/// family once, all its series together. Families that the router has itself (requests as their
/// clients saw them) are left out of the engines' part, as is whatever isn't a valid line; an
/// engine without an answer becomes a comment.
[[nodiscard]] std::string merge_metrics(const std::string& own,
                                        const std::vector<EngineMetrics>& engines);

}  // namespace baton::router
