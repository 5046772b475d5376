// A run of load as one HTML file: the table and plots, nothing to fetch, no script.
#pragma once

#include <string>

#include "bench/online_report.h"

namespace baton::bench {

[[nodiscard]] std::string html_report(const OnlineSetting& setting, const Summary& summary,
                                      const LoadResult& result);

}  // namespace baton::bench
