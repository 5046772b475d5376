// The router's way to one engine: the four verbs, and what comes back from it. Implemented over
// HTTP (http_link.h), and by stand-ins in tests.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/engine_info.h"
#include "base/handoff.h"
#include "base/token_request.h"

namespace baton::router {

/// What a link reports; called on the router's thread. `engine` is the index the link was made for.
class EngineListener {
 public:
  virtual ~EngineListener() = default;
  virtual void on_up(int engine, const EngineInfo& info) = 0;
  /// The engine is gone or unreachable: nothing that was under way there comes to an end any more.
  virtual void on_down(int engine, const std::string& reason) = 0;
  virtual void on_state(int engine, const EngineState& state) = 0;
  virtual void on_update(int engine, RequestUpdate update) = 0;
};

/// Owned and used by the router's thread; callbacks come on that thread, never inside the call.
/// After on_down() no callback of an earlier call comes any more, except with kUnavailable. Errors:
/// kExhausted = has no room now (try later or elsewhere), kUnavailable = not reachable,
/// kInvalidArgument = can never run there.
class EngineLink {
 public:
  template <typename T>
  using Callback = std::function<void(Result<T>)>;

  virtual ~EngineLink() = default;
  virtual void prep_recv(const PrepareReceive& request, Callback<PreparedReceive> done) = 0;
  virtual void remote_send(const RemoteSend& request, Callback<SentKv> done) = 0;
  /// `done` says that the engine took it (or not); what it generates comes by
  /// EngineListener::on_update(), possibly before `done`.
  virtual void start_generate(const TokenRequest& request, Callback<void> done) = 0;
  /// Ends a start_generate (or one choice of it) or a remote_send, in whatever state; unknown ids
  /// are ignored. Never overtakes the verb that it ends.
  virtual void cancel(RequestId id, std::optional<int> choice) = 0;
  virtual void release(LeaseId lease) = 0;

  /// Where the engine is from now on; what was under way to another URL ends with on_down(). Empty:
  /// nowhere, until told. A link that is told again where it is tries at once.
  virtual void connect(const std::string& /*url*/) {}
  /// Timers: tick() wants to be called at deadline() (of the injected clock), or at any time.
  [[nodiscard]] virtual std::optional<int64_t> deadline() const { return std::nullopt; }
  virtual void tick() {}
};

}  // namespace baton::router
