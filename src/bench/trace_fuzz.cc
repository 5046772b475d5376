// Any bytes as a trace: an error that can be shown, or rows that a workload can be made of.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "bench/trace.h"
#include "bench/workload.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton::bench;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto rows = parse_trace(text, "fuzz");
  if (!rows) {
    BATON_CHECK(rows.error().message.starts_with("fuzz"));
    return 0;
  }
  BATON_CHECK(!rows->empty());
  double before_s = 0;
  for (const TraceRow& row : *rows) {
    BATON_CHECK(row.time_s >= before_s);
    before_s = row.time_s;
    BATON_CHECK(row.n_prompt >= 1 && row.n_output >= 1);
  }
  auto requests = replay(*rows, {.speed = 3, .length_scale = 0.01, .seed = 1});
  fit(requests, {.max_prompt = 0, .max_output = 0, .max_total = 100, .reserve = 10});
  for (const PlannedRequest& request : requests) {
    BATON_CHECK(request.n_prompt() >= 1 && request.n_output >= 1);
    BATON_CHECK(request.n_prompt() + request.n_output <= 90);
  }
  return 0;
}
