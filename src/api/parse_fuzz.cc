// Any bytes as the body of every POST route: a request or a 400 that can be sent, never a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/parse.h"
#include "base/check.h"

namespace {

template <typename T>
void check(const baton::api::ApiResult<T>& result) {
  if (result) return;
  BATON_CHECK(result.error().status == 400, "status {}", result.error().status);
  BATON_CHECK(!result.error().message.empty());
  BATON_CHECK(!baton::api::error_body(result.error()).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  baton::api::RequestLimits limits;
  limits.n_vocab = 1000;
  check(baton::api::parse_completion_request(body, limits));
  check(baton::api::parse_chat_request(body, limits));
  check(baton::api::parse_tokenize_request(body, limits));
  check(baton::api::parse_detokenize_request(body, limits));
  return 0;
}
