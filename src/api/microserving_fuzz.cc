// Any bytes as every message between router and engines: what is read can be written and read
// again with the same result; what is refused has a message that can be sent.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/microserving.h"
#include "base/check.h"

namespace {

using namespace baton::api;

template <typename T>
bool accepted(const ApiResult<T>& result) {
  if (result) return true;
  BATON_CHECK(result.error().status == 400 && !result.error().message.empty());
  BATON_CHECK(!error_body(result.error()).empty());
  return false;
}

template <typename T>
bool accepted(const baton::Result<T>& result) {
  BATON_CHECK(result || result.error().code == baton::ErrorCode::kCorrupt);
  return result.has_value();
}

/// write(read(text)) is a fixed point.
template <typename Read, typename Write>
void check(std::string_view text, Read read, Write write) {
  const auto first = read(text);
  if (!accepted(first)) return;
  const std::string written = write(*first);
  const auto second = read(written);
  BATON_CHECK(accepted(second), "not read again: {}", written);
  BATON_CHECK(write(*second) == written, "changed on the way: {}", written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr WireLimits kLimits{.n_vocab = 1000, .context_tokens = 256, .block_tokens = 16};
  check(text, read_attach, write_attach);
  check(
      text, [&](std::string_view t) { return read_prep_recv(t, kLimits); }, write_prep_recv);
  check(
      text, [&](std::string_view t) { return read_remote_send(t, kLimits); }, write_remote_send);
  check(
      text, [&](std::string_view t) { return read_start_generate(t, kLimits); },
      write_start_generate);
  check(text, read_release, write_release);
  check(text, read_attached, write_attached);
  check(
      text, [](std::string_view t) { return read_frame(t, 1000); }, write_frame);
  check(text, read_prepared,
        [](const baton::PreparedReceive& prepared) { return write_prepared(prepared, 1); });
  check(
      text, [](std::string_view t) { return read_sent(t, 1000); },
      [](const baton::SentKv& sent) { return write_sent(sent, 1); });
  check(text, read_incarnation, write_done);
  BATON_CHECK(!read_error(size % 2 == 0 ? 500 : 404, text).message.empty());
  return 0;
}
