// Fuzz target: any bytes parse to an error or to views that can be read in full.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "format/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton::format;
  const auto file = GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file) {
    if (file.error().message.empty()) std::abort();
    return 0;
  }
  size_t sum = 0;
  for (const auto& entry : file->metadata().entries()) {
    std::vector<std::string_view> strings;
    std::vector<GgufValue> values;
    std::vector<float> floats;
    std::vector<int32_t> ints;
    std::string_view text;
    sum += entry.value.to(values) + entry.value.to(floats) + entry.value.to(ints);
    if (entry.value.to(text)) strings.push_back(text);
    (void)entry.value.to(strings);
    for (const auto s : strings) {
      for (const char c : s) sum += static_cast<unsigned char>(c);
    }
    // The key was stored once and is found again.
    if (file->metadata().find(entry.key) != &entry.value) std::abort();
  }
  for (const TensorView& tensor : file->tensors()) {
    for (const std::byte b : tensor.data) sum += static_cast<size_t>(b);
  }
  volatile size_t sink = sum;
  (void)sink;
  return 0;
}
