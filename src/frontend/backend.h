// What a frontend serves from: token request in, token events out. Implemented over the local
// engine (src/server) and over remote engines (src/router).
#pragma once

#include <optional>
#include <string>

#include "base/token_request.h"

namespace baton::frontend {

/// Whether the backend can work now; `reason` says why not.
struct BackendHealth {
  bool alive = true;  ///< it can make progress (GET /health)
  bool ready = true;  ///< it takes new requests (GET /ready)
  std::string reason;
};

/// Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Queues the request; `sink` then gets every update, the last event of each choice with a
  /// finish reason, and nothing after that. On error nothing was queued and `sink` is never called:
  /// kExhausted = queue full, kUnavailable = can't serve, kInvalidArgument = can never fit.
  [[nodiscard]] virtual Status submit(TokenRequest request, UpdateSink sink) = 0;
  /// Ends a request, or one choice of it, in whatever state it is; unknown ids are ignored. The
  /// ended choices get no further events, not even a finish (the caller knows).
  virtual void cancel(RequestId id, std::optional<int> choice = std::nullopt) = 0;
  [[nodiscard]] virtual BackendHealth health() const = 0;
};

}  // namespace baton::frontend
