// EngineLink over HTTP (docs/protocol.md): one attach stream, whose end is the engine's end as far
// as the router is concerned, and a request for each verb.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/microserving.h"
#include "base/clock.h"
#include "net/http_client.h"
#include "router/engine_link.h"

namespace baton::router {

struct HttpLinkOptions {
  int engine = 0;            ///< the index that is reported to the listener
  std::string internal_key;  ///< Bearer token that the engine wants; empty = none
  std::string router_name = "router";
  /// No frame for so long (they come at least once a second): the engine is as good as gone.
  int64_t silence_ns = int64_t{10} * 1'000'000'000;
  int64_t first_retry_ns = 50'000'000;  ///< pause before attaching again, doubled each time
  int64_t last_retry_ns = int64_t{2} * 1'000'000'000;  ///< but no longer than this
  int64_t verb_timeout_ns =
      int64_t{30} * 1'000'000'000;  ///< of all but remote_send, which takes as long as it takes
  int64_t resend_ns = 100'000'000;  ///< pause before a release or cancel is sent again
};

/// What a link uses; all outlive it.
struct HttpLinkDeps {
  EngineListener& listener;
  /// Runs a task on the router's thread, soon. Called on any thread; no task runs once the link is
  /// being destroyed.
  std::function<void(std::function<void()>)> post;
  const Clock& clock;
  std::shared_ptr<net::HttpClientThread> io;
};

/// Owned and used by the router's thread. After connect() it attaches, again and again.
class HttpLink final : public EngineLink {
 public:
  HttpLink(HttpLinkOptions options, HttpLinkDeps deps);
  ~HttpLink() override;

  void prep_recv(const PrepareReceive& request, Callback<PreparedReceive> done) override;
  void remote_send(const RemoteSend& request, Callback<SentKv> done) override;
  void start_generate(const TokenRequest& request, Callback<void> done) override;
  void cancel(RequestId id, std::optional<int> choice) override;
  void release(LeaseId lease) override;
  /// Reports on_down() inside the call if it was connected to another URL.
  void connect(const std::string& url) override;
  [[nodiscard]] std::optional<int64_t> deadline() const override;
  void tick() override;

 private:
  enum class Phase {
    kIdle,       ///< no URL
    kWaiting,    ///< until retry_at_ns_
    kAttaching,  ///< the stream is being opened
    kUp,
  };
  /// A release that has no answer yet: sent again until it has one, or the engine is gone.
  struct Unconfirmed {
    api::Release release;
    int64_t send_at_ns = 0;
  };
  using Answer = std::function<void(Result<net::HttpResponse>)>;

  void attach();
  void on_attached(uint64_t connection, api::Attached attached);
  void on_frame(uint64_t connection, api::Frame frame);
  void lost(uint64_t connection, const std::string& reason);
  /// Posts `body`; `answer` gets a 200 of the attached incarnation, or the error, on the router's
  /// thread, and nothing once the connection was lost.
  net::HttpCall ask(const char* path, std::string body, int64_t timeout_ns, Answer answer);
  [[nodiscard]] Result<net::HttpResponse> checked(Result<net::HttpResponse> response) const;
  void let_go(const api::Release& release);
  void send_unconfirmed();

  HttpLinkOptions options_;
  HttpLinkDeps deps_;
  std::string url_;
  Phase phase_ = Phase::kIdle;
  int64_t retry_at_ns_ = 0;
  int64_t retry_ns_ = 0;
  int64_t last_sign_ns_ = 0;  ///< of life: a frame, or the beginning of an attempt
  uint64_t connection_ = 0;   ///< counts attempts: what comes late belongs to an earlier one
  std::string session_;
  EngineInfo info_;
  /// Requests whose start_generate has no answer yet, and what is to be cancelled of them then.
  std::unordered_map<RequestId, std::vector<std::optional<int>>> starting_;
  std::unordered_map<RequestId, net::HttpCall> sending_;
  std::deque<Unconfirmed> unconfirmed_;
  net::HttpCall attach_call_;
  std::unique_ptr<net::HttpClient> client_;  ///< last: its callbacks use the rest
};

}  // namespace baton::router
