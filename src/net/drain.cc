#include "net/drain.h"

#include <algorithm>

namespace baton::net {

bool drain(HttpServer& server, std::chrono::milliseconds timeout,
           const std::function<bool(std::chrono::nanoseconds)>& finish) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  server.stop_accepting();
  const bool finished = finish(timeout);
  const auto left =
      std::chrono::floor<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  const bool written = server.wait_idle(std::max(left, std::chrono::milliseconds(1000)));
  server.stop();
  return finished && written;
}

}  // namespace baton::net
