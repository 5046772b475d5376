#include "router/http_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"

namespace baton::router {
namespace {

using net::HttpRequest;
using net::HttpResponse;

/// A frame carries what one step brought, with log probabilities of whole prompts at most.
constexpr size_t kMaxLineBytes = size_t{256} << 20;

HttpRequest post_request(const char* path, std::string body) {
  return {.method = "POST",
          .path = path,
          .query = {},
          .headers = {{"content-type", "application/json"}},
          .body = std::move(body)};
}

/// Cuts the attach stream into lines and reads them. On the I/O thread, so that the router's isn't
/// kept from its work by JSON.
class AttachReader {
 public:
  std::function<void(api::Attached)> on_attached;
  std::function<void(api::Frame)> on_frame;
  std::function<void(std::string)> on_fault;  ///< once; nothing is read any more

  void read_head(const HttpResponse& head) {
    if (head.status != 200) fault(fmt::format("attach was answered with HTTP {}", head.status));
  }

  void read(std::string_view chunk) {
    while (!faulty_) {
      const size_t end = chunk.find('\n');
      buffer_ += chunk.substr(0, end);
      if (buffer_.size() > kMaxLineBytes) return fault("the engine sent a line without end");
      if (end == chunk.npos) return;
      chunk.remove_prefix(end + 1);
      read_line(std::exchange(buffer_, {}));
    }
  }

 private:
  void read_line(const std::string& line) {
    if (n_vocab_ == 0) {
      auto attached = api::read_attached(line);
      if (!attached) return fault(attached.error().message);
      n_vocab_ = attached->engine.n_vocab;
      return on_attached(std::move(*attached));
    }
    auto frame = api::read_frame(line, n_vocab_);
    if (!frame) return fault(frame.error().message);
    on_frame(std::move(*frame));
  }

  void fault(std::string message) {
    if (!std::exchange(faulty_, true)) on_fault(std::move(message));
  }

  std::string buffer_;
  int n_vocab_ = 0;
  bool faulty_ = false;
};

/// The engine has read a start_generate and has nothing of it.
bool is_refusal(ErrorCode code) {
  return code == ErrorCode::kInvalidArgument || code == ErrorCode::kNotFound ||
         code == ErrorCode::kExhausted;
}

}  // namespace

HttpLink::HttpLink(HttpLinkOptions options, HttpLinkDeps deps)
    : options_(std::move(options)), deps_(std::move(deps)) {}

HttpLink::~HttpLink() = default;

void HttpLink::connect(const std::string& url) {
  if (url == url_ && (phase_ == Phase::kUp || phase_ == Phase::kAttaching)) return;
  if (url != url_) {
    lost(connection_, "it has moved");
    client_.reset();
    url_ = url;
  }
  retry_ns_ = options_.first_retry_ns;
  phase_ = url_.empty() ? Phase::kIdle : Phase::kWaiting;
  retry_at_ns_ = deps_.clock.now_ns();
  if (phase_ == Phase::kWaiting) attach();
}

void HttpLink::attach() {
  const uint64_t connection = ++connection_;
  phase_ = Phase::kAttaching;
  last_sign_ns_ = deps_.clock.now_ns();
  if (!client_) {
    net::HttpClientOptions options;
    options.origin = url_;
    options.bearer_token = options_.internal_key;
    auto client = net::HttpClient::create(std::move(options), deps_.io);
    if (!client) return lost(connection, client.error().message);
    client_ = std::move(*client);
  }
  auto reader = std::make_shared<AttachReader>();
  reader->on_attached = [this, connection](api::Attached attached) {
    deps_.post([this, connection, attached = std::move(attached)]() mutable {
      on_attached(connection, std::move(attached));
    });
  };
  reader->on_frame = [this, connection](api::Frame frame) {
    deps_.post([this, connection, frame = std::move(frame)]() mutable {
      on_frame(connection, std::move(frame));
    });
  };
  reader->on_fault = [this, connection](std::string message) {
    deps_.post([this, connection, message = std::move(message)] { lost(connection, message); });
  };
  net::StreamHandlers handlers;
  handlers.on_head = [reader](const HttpResponse& head) { reader->read_head(head); };
  handlers.on_chunk = [reader](std::string_view chunk) { reader->read(chunk); };
  handlers.on_end = [this, connection](const Status& status) {
    std::string reason = status ? "the engine closed the connection" : status.error().message;
    deps_.post([this, connection, reason = std::move(reason)] { lost(connection, reason); });
  };
  attach_call_ =
      client_->stream(post_request(api::kAttachPath, api::write_attach({options_.router_name})),
                      std::move(handlers));
}

void HttpLink::on_attached(uint64_t connection, api::Attached attached) {
  if (connection != connection_ || phase_ != Phase::kAttaching) return;
  phase_ = Phase::kUp;
  last_sign_ns_ = deps_.clock.now_ns();
  retry_ns_ = options_.first_retry_ns;
  session_ = std::move(attached.session);
  info_ = std::move(attached.engine);
  deps_.listener.on_up(options_.engine, info_);
}

void HttpLink::on_frame(uint64_t connection, api::Frame frame) {
  if (connection != connection_ || phase_ != Phase::kUp) return;
  last_sign_ns_ = deps_.clock.now_ns();
  deps_.listener.on_state(options_.engine, frame.state);
  for (RequestUpdate& update : frame.updates) {
    deps_.listener.on_update(options_.engine, std::move(update));
  }
}

void HttpLink::lost(uint64_t connection, const std::string& reason) {
  if (connection != connection_ || (phase_ != Phase::kUp && phase_ != Phase::kAttaching)) return;
  ++connection_;
  attach_call_.cancel();
  for (const auto& [id, call] : sending_) call.cancel();
  sending_.clear();
  starting_.clear();
  unconfirmed_.clear();
  phase_ = Phase::kWaiting;
  retry_at_ns_ = deps_.clock.now_ns() + retry_ns_;
  retry_ns_ = std::min(2 * retry_ns_, options_.last_retry_ns);
  deps_.listener.on_down(options_.engine, reason);
}

std::optional<int64_t> HttpLink::deadline() const {
  switch (phase_) {
    case Phase::kIdle:
      return std::nullopt;
    case Phase::kWaiting:
      return retry_at_ns_;
    case Phase::kAttaching:
    case Phase::kUp:
      break;
  }
  int64_t out = last_sign_ns_ + options_.silence_ns;
  for (const Unconfirmed& one : unconfirmed_) out = std::min(out, one.send_at_ns);
  return out;
}

void HttpLink::tick() {
  const int64_t now_ns = deps_.clock.now_ns();
  if (phase_ == Phase::kWaiting && now_ns >= retry_at_ns_) return attach();
  if (phase_ != Phase::kAttaching && phase_ != Phase::kUp) return;
  if (now_ns - last_sign_ns_ >= options_.silence_ns) {
    return lost(connection_, fmt::format("nothing was heard of it for {} s",
                                         options_.silence_ns / 1'000'000'000));
  }
  if (phase_ == Phase::kUp) send_unconfirmed();
}

net::HttpCall HttpLink::ask(const char* path, std::string body, int64_t timeout_ns, Answer answer) {
  if (phase_ != Phase::kUp) {
    deps_.post([answer = std::move(answer)] {
      answer(fail(ErrorCode::kUnavailable, "the engine is not connected"));
    });
    return {};
  }
  auto done = [this, connection = connection_,
               answer = std::move(answer)](Result<HttpResponse> response) mutable {
    deps_.post(
        [this, connection, answer = std::move(answer), response = std::move(response)]() mutable {
          if (connection == connection_) answer(checked(std::move(response)));
        });
  };
  return client_->request(post_request(path, std::move(body)),
                          std::chrono::milliseconds(timeout_ns / 1'000'000), std::move(done));
}

Result<HttpResponse> HttpLink::checked(Result<HttpResponse> response) const {
  if (!response) return response;
  if (response->status != 200) {
    return tl::unexpected(api::read_error(response->status, response->body));
  }
  const auto incarnation = api::read_incarnation(response->body);
  if (!incarnation) return tl::unexpected(incarnation.error());
  if (*incarnation != info_.incarnation) {
    return fail(ErrorCode::kUnavailable, "incarnation {} answered, {} is attached", *incarnation,
                info_.incarnation);
  }
  return response;
}

void HttpLink::prep_recv(const PrepareReceive& request, Callback<PreparedReceive> done) {
  ask(api::kPrepRecvPath, api::write_prep_recv({session_, request}), options_.verb_timeout_ns,
      [done = std::move(done)](Result<HttpResponse> response) {
        if (!response) return done(tl::unexpected(response.error()));
        done(api::read_prepared(response->body));
      });
}

void HttpLink::remote_send(const RemoteSend& request, Callback<SentKv> done) {
  sending_[request.id] =
      ask(api::kRemoteSendPath, api::write_remote_send({session_, request}), 0,
          [this, id = request.id, done = std::move(done)](Result<HttpResponse> response) {
            if (sending_.erase(id) == 0) return;  // cancelled
            if (!response) return done(tl::unexpected(response.error()));
            done(api::read_sent(response->body, info_.n_vocab));
          });
}

void HttpLink::start_generate(const TokenRequest& request, Callback<void> done) {
  starting_[request.id] = {};
  ask(api::kStartGeneratePath, api::write_start_generate({session_, request}),
      options_.verb_timeout_ns,
      [this, id = request.id, done = std::move(done)](Result<HttpResponse> response) {
        const auto it = starting_.find(id);
        if (it == starting_.end()) return;
        std::vector<std::optional<int>> cancelled = std::move(it->second);
        starting_.erase(it);
        const bool refused = !response && is_refusal(response.error().code);
        // Without an answer, or with one that makes no sense, it may run there all the same, for
        // nobody.
        if (!response && !refused) cancelled = {std::nullopt};
        if (refused) cancelled.clear();
        for (const std::optional<int> choice : cancelled) cancel(id, choice);
        if (!response) return done(tl::unexpected(response.error()));
        done({});
      });
}

void HttpLink::cancel(RequestId id, std::optional<int> choice) {
  if (const auto send = sending_.find(id); send != sending_.end()) {
    send->second.cancel();
    sending_.erase(send);
    return;
  }
  if (const auto start = starting_.find(id); start != starting_.end()) {
    // On a connection of its own it might arrive before what it ends.
    start->second.push_back(choice);
    return;
  }
  let_go({.lease = std::nullopt, .request = id, .choice = choice});
}

void HttpLink::release(LeaseId lease) {
  let_go({.lease = lease, .request = std::nullopt, .choice = std::nullopt});
}

void HttpLink::let_go(const api::Release& release) {
  if (phase_ != Phase::kUp) return;  // all of the session's has ended with it
  unconfirmed_.push_back({release, 0});
  send_unconfirmed();
}

void HttpLink::send_unconfirmed() {
  const int64_t now_ns = deps_.clock.now_ns();
  std::deque<Unconfirmed> later;
  std::deque<Unconfirmed> all = std::exchange(unconfirmed_, {});
  for (const Unconfirmed& one : all) {
    if (one.send_at_ns > now_ns) {
      later.push_back(one);
      continue;
    }
    ask(api::kReleasePath, api::write_release({session_, one.release}), options_.verb_timeout_ns,
        [this, release = one.release](const Result<HttpResponse>& response) {
          if (response) return;
          const ErrorCode code = response.error().code;
          if (code == ErrorCode::kNotFound || code == ErrorCode::kInvalidArgument) return;
          unconfirmed_.push_back({release, deps_.clock.now_ns() + options_.resend_ns});
        });
  }
  std::move(later.begin(), later.end(), std::back_inserter(unconfirmed_));
}

}  // namespace baton::router
