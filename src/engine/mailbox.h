// How other threads reach the engine thread: messages in a bounded queue.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/handoff.h"
#include "base/token_request.h"

namespace baton::engine {

struct SubmitMessage {
  TokenRequest request;
  UpdateSink sink;
};
struct SendMessage {
  RemoteSend request;
  std::function<void(Result<SentKv>)> done;
};
struct PrepareMessage {
  PrepareReceive request;
  std::function<void(Result<PreparedReceive>)> done;
};
struct ReleaseMessage {
  LeaseId lease;
};
struct CancelMessage {
  RequestId id;
  std::optional<int> choice;
};
using Message =
    std::variant<SubmitMessage, SendMessage, PrepareMessage, ReleaseMessage, CancelMessage>;

/// What the engine thread has got through, in totals since the start.
struct Progress {
  int64_t n_left_queue = 0;  ///< requests that were admitted, or ended before
  int64_t n_ended = 0;       ///< requests that are gone
};

/// Bounded by the requests and sends that wait, those in the engine's own queue included.
/// Thread-safe.
class Mailbox {
 public:
  explicit Mailbox(int max_queue) : max_queue_(max_queue) {}

  /// A request or a send. kExhausted when full (retryable), kUnavailable when closed: then nothing
  /// has become of `message`.
  [[nodiscard]] Status submit(Message&& message, int64_t now_ns);
  /// Errors as submit().
  [[nodiscard]] Status prepare(PrepareMessage&& message, int64_t now_ns);
  /// Left out when the box is full: leases end by themselves.
  void release(ReleaseMessage message, int64_t now_ns);
  void cancel(CancelMessage message, int64_t now_ns);
  /// Refuses further submits with `reason`; what is in the box stays.
  void close(std::string reason);
  /// Makes a waiting take() return.
  void wake();

  /// Everything in the box, in order.
  [[nodiscard]] std::vector<Message> take();
  /// The same, but sleeps until there is something, or wake(), or for `timeout_ns` (none = as long
  /// as it takes).
  [[nodiscard]] std::vector<Message> wait_and_take(std::optional<int64_t> timeout_ns);
  void report(const Progress& progress);

  struct Pending {
    int64_t n_requests = 0;  ///< accepted and not ended
    size_t n_messages = 0;   ///< not taken
    int64_t since_ns = 0;    ///< the longest that there have been any of one kind without a break
    [[nodiscard]] bool any() const { return n_requests > 0 || n_messages > 0; }
  };
  [[nodiscard]] Pending pending() const;
  /// Waits until no request is pending; false if `timeout_ns` passed before.
  [[nodiscard]] bool wait_until_idle(int64_t timeout_ns) const;

 private:
  [[nodiscard]] bool overfull() const;
  void push_locked(Message&& message, int64_t now_ns);

  const int max_queue_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  mutable std::condition_variable idle_;
  std::vector<Message> messages_;
  std::optional<std::string> closed_;
  bool woken_ = false;
  int64_t n_submitted_ = 0;
  int64_t pending_since_ns_ = 0;  ///< of requests
  int64_t untaken_since_ns_ = 0;  ///< of messages
  Progress progress_;
};

}  // namespace baton::engine
