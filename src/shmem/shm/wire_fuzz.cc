// Fuzz target: any bytes are refused with a message, or are a message that can be written again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "shmem/shm/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton::shmem;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto message = parse_message(bytes);
  if (!message) {
    if (message.error().message.empty()) std::abort();
    return 0;
  }
  // There is one way to write a message.
  const auto again = encode(*message);
  if (again.size() != bytes.size() || !std::equal(again.begin(), again.end(), bytes.begin())) {
    std::abort();
  }
  if (const auto* hello = std::get_if<Hello>(&*message)) {
    if (!check_hello(*hello)) std::abort();
    Hello other = *hello;
    other.incarnation ^= 1;
    const auto refusal = compare(*hello, other);
    if (!refusal || refusal->text.empty()) std::abort();  // both claim the same PEs
  }
  return 0;
}
