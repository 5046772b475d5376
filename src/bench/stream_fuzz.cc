// Any bytes as a stream of events, in one piece and byte by byte: the same events.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "bench/stream_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton::bench;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> whole;
  std::vector<std::string> parts;
  SseReader first;
  (void)first.read(text, [&](std::string_view event) { whole.emplace_back(event); });
  SseReader second;
  for (size_t i = 0; i < text.size(); ++i) {
    (void)second.read(text.substr(i, 1),
                      [&](std::string_view event) { parts.emplace_back(event); });
  }
  BATON_CHECK(whole == parts);
  for (const std::string& event : whole) (void)read_stream_chunk(event);
  (void)read_stream_chunk(text);
  return 0;
}
