#include "server/microserving.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/log.h"
#include "base/service_thread.h"

namespace baton::server {
namespace {

using Exchange = std::shared_ptr<net::HttpExchange>;

void respond(const Exchange& exchange, std::string body) {
  exchange->respond({.status = 200, .headers = {}, .body = std::move(body)});
}

void refuse(const Exchange& exchange, const api::ApiError& error) {
  net::HttpResponse response{.status = error.status, .headers = {}, .body = api::error_body(error)};
  if (error.retry_after_s > 0)
    response.headers["Retry-After"] = std::to_string(error.retry_after_s);
  exchange->respond(std::move(response));
}

void refuse(const Exchange& exchange, const Error& error) {
  refuse(exchange, api::from_error(error));
}

net::HttpResponse stream_head() {
  return {.content_type = api::kFrameContentType,
          .headers = {{"Cache-Control", "no-cache"}},
          .body = {}};
}

/// Hard to guess: who knows it may end what was started under it.
std::string random_session_id() {
  std::random_device random;
  std::string out;
  for (int i = 0; i < 4; ++i) out += fmt::format("{:08x}", random());
  return out;
}

/// An answer that the engine's thread gives, and whether anybody waits for it.
struct Waiting {
  explicit Waiting(Exchange e) : exchange(std::move(e)) {}
  const Exchange exchange;
  bool gone = false;  ///< of the exchange's strand

  /// `answer` on the exchange's strand: (waiting, result).
  template <typename T, typename Answer>
  static std::function<void(Result<T>)> on_strand(const std::shared_ptr<Waiting>& waiting,
                                                  Answer answer) {
    return [waiting, answer](Result<T> result) {
      // By a pointer: std::function must be copyable, and the results are large.
      auto kept = std::make_shared<Result<T>>(std::move(result));
      waiting->exchange->post([waiting, answer, kept] { answer(*waiting, *kept); });
    };
  }
};

}  // namespace

Microserving::Microserving(MicroservingOptions options, const Deps& deps)
    : options_(std::move(options)),
      engine_(deps.engine),
      heap_(deps.heap),
      clock_(deps.clock),
      limits_{.n_vocab = options_.info.n_vocab,
              .context_tokens = options_.info.context_tokens,
              .block_tokens = options_.info.block_tokens},
      // The frontend of this engine counts its own from 1.
      next_id_(uint64_t{1} << 63),
      heart_(service_thread("baton-heartbeat", [this] { beat(); })) {}

Microserving::~Microserving() { stop(); }

std::vector<frontend::ExtraRoute> Microserving::routes() {
  const auto route = [this](const char* path, void (Microserving::*handler)(const Exchange&)) {
    return frontend::ExtraRoute{
        .method = "POST", .path = path, .handler = [this, handler](const Exchange& exchange) {
          (this->*handler)(exchange);
        }};
  };
  return {route(api::kAttachPath, &Microserving::attach),
          route(api::kPrepRecvPath, &Microserving::prep_recv),
          route(api::kRemoteSendPath, &Microserving::remote_send),
          route(api::kStartGeneratePath, &Microserving::start_generate),
          route(api::kReleasePath, &Microserving::release)};
}

void Microserving::attach(const Exchange& exchange) {
  auto request = api::read_attach(exchange->request().body);
  if (!request) return refuse(exchange, request.error());
  const SessionPtr session =
      open_session({.id = random_session_id(), .router = std::move(request->router)}, exchange);
  if (!session) {
    return refuse(exchange, Error{ErrorCode::kUnavailable, "the engine is stopping"});
  }
  spdlog::info("router '{}' is here", session->options().router);
  exchange->start_stream(stream_head());
  exchange->write(api::write_attached({session->options().id, options_.info}));
}

void Microserving::prep_recv(const Exchange& exchange) {
  auto request = api::read_prep_recv(exchange->request().body, limits_);
  if (!request) return refuse(exchange, request.error());
  const auto session = find_session(request->session);
  if (!session) return refuse(exchange, session.error());
  const auto waiting = std::make_shared<Waiting>(exchange);
  // Weak: what the exchange holds must not hold the exchange.
  exchange->on_close([weak = std::weak_ptr(waiting)] {
    if (const auto alive = weak.lock()) alive->gone = true;
  });
  engine_.prepare_receive(
      std::move(request->message),
      Waiting::on_strand<PreparedReceive>(
          waiting, [this, session = *session](const Waiting& at, Result<PreparedReceive>& result) {
            if (!result) return refuse(at.exchange, result.error());
            // Nobody would ever use a lease that nobody hears of.
            if (at.gone || (session && !session->add_lease(result->lease))) {
              engine_.release(result->lease);
            }
            respond(at.exchange, api::write_prepared(*result, options_.info.incarnation));
          }));
}

std::optional<api::ApiError> Microserving::check_address(const KvAddress& address) const {
  if (address.layout_hash != options_.info.layout_hash) {
    return api::mismatch("to.layout_hash", "KV layout", std::to_string(address.layout_hash),
                         std::to_string(options_.info.layout_hash));
  }
  const auto peer = heap_ == nullptr ? std::nullopt : heap_->peer(address.pe);
  if (peer && peer->incarnation != address.incarnation) {
    return api::mismatch("to.incarnation", fmt::format("incarnation on PE {}", address.pe.value),
                         std::to_string(address.incarnation), std::to_string(peer->incarnation));
  }
  return std::nullopt;
}

void Microserving::remote_send(const Exchange& exchange) {
  auto request = api::read_remote_send(exchange->request().body, limits_);
  if (!request) return refuse(exchange, request.error());
  RemoteSend& message = request->message;
  if (const auto error = check_address(message.to)) return refuse(exchange, *error);
  const auto session = find_session(request->session);
  if (!session) return refuse(exchange, session.error());
  const RequestId theirs = message.id;
  const RequestId ours = next_id();
  if (*session) {
    if (auto begun = (*session)->begin(theirs, ours); !begun) {
      return refuse(exchange, begun.error());
    }
  }
  message.id = ours;
  message.arrival_ns = arrival(message.arrival_ns);
  exchange->on_close([this, session = *session, theirs, ours] {
    if (session) session->forget(theirs);
    engine_.cancel(ours);
  });
  const auto waiting = std::make_shared<Waiting>(exchange);
  const Status queued = engine_.remote_send(
      std::move(message),
      Waiting::on_strand<SentKv>(
          waiting, [this, session = *session, theirs](const Waiting& at, Result<SentKv>& result) {
            if (session) session->forget(theirs);
            if (!result) return refuse(at.exchange, result.error());
            respond(at.exchange, api::write_sent(*result, options_.info.incarnation));
          }));
  if (!queued) {
    if (*session) (*session)->forget(theirs);
    return refuse(exchange, queued.error());
  }
  // If the session ended before the send was queued, it cancelled too early.
  if (*session && (*session)->closed()) engine_.cancel(ours);
}

Status Microserving::submit(const SessionPtr& session, TokenRequest request) {
  const RequestId theirs = request.id;
  const RequestId ours = next_id();
  std::vector<int> choices;
  for (int i = 0; i < request.n_choices; ++i) choices.push_back(request.first_choice + i);
  if (auto begun = session->begin(theirs, ours, std::move(choices)); !begun) return begun;
  if (request.leased) session->drop_lease(request.leased->lease);
  const std::optional<TokenRequest::LeasedPrefix> leased = request.leased;
  request.id = ours;
  request.arrival_ns = arrival(request.arrival_ns);
  const Status queued =
      engine_.submit(std::move(request), [this, session, theirs](RequestUpdate update) {
        if (session->add(theirs, std::move(update))) with_news_.push_back(session);
      });
  if (!queued) {
    session->forget(theirs);
    if (leased) (void)session->add_lease(leased->lease);  // still nobody's
    return queued;
  }
  // If the session ended before the request was queued, it cancelled too early.
  if (session->closed()) engine_.cancel(ours);
  return {};
}

void Microserving::start_generate(const Exchange& exchange) {
  auto request = api::read_start_generate(exchange->request().body, limits_);
  if (!request) return refuse(exchange, request.error());
  const auto session = find_session(request->session);
  if (!session) return refuse(exchange, session.error());
  if (!*session) return start_streaming(exchange, std::move(request->message));
  if (auto ok = submit(*session, std::move(request->message)); !ok) {
    return refuse(exchange, ok.error());
  }
  respond(exchange, api::write_done(options_.info.incarnation));
}

void Microserving::start_streaming(const Exchange& exchange, TokenRequest request) {
  const SessionPtr session =
      open_session({.id = random_session_id(), .router = {}, .one_request = true}, exchange);
  if (!session) {
    return refuse(exchange, Error{ErrorCode::kUnavailable, "the engine is stopping"});
  }
  if (auto ok = submit(session, std::move(request)); !ok) {
    close_session(session);
    return refuse(exchange, ok.error());
  }
  // We are on the exchange's strand, so no frame can overtake this.
  exchange->start_stream(stream_head());
  exchange->write(api::write_done(options_.info.incarnation) + "\n");
}

void Microserving::release(const Exchange& exchange) {
  const auto request = api::read_release(exchange->request().body);
  if (!request) return refuse(exchange, request.error());
  const auto session = find_session(request->session);
  if (!session) return refuse(exchange, session.error());
  const api::Release& message = request->message;
  if (message.request) (*session)->cancel(*message.request, message.choice);
  if (message.lease) {
    if (*session) (*session)->drop_lease(*message.lease);
    engine_.release(*message.lease);
  }
  respond(exchange, api::write_done(options_.info.incarnation));
}

api::ApiResult<Microserving::SessionPtr> Microserving::find_session(const std::string& id) {
  if (id.empty()) return SessionPtr();
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(id);
  if (found != sessions_.end() && !found->second->options().one_request) return found->second;
  return tl::unexpected(
      api::ApiError{.status = 404,
                    .type = "not_found_error",
                    .message = "'session': there is none of that name (any more); attach again",
                    .param = "session",
                    .code = "session_not_found"});
}

Microserving::SessionPtr Microserving::open_session(Session::Options options,
                                                    const Exchange& exchange) {
  options.state = [this] { return state(); };
  const auto session = std::make_shared<Session>(std::move(options), exchange, engine_);
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return nullptr;
    sessions_.emplace(session->options().id, session);
  }
  changed_.notify_all();
  exchange->on_close([this, weak = std::weak_ptr(session)] {
    if (const auto alive = weak.lock()) close_session(alive);
  });
  return session;
}

void Microserving::close_session(const SessionPtr& session) {
  session->close();
  const std::lock_guard lock(mutex_);
  sessions_.erase(session->options().id);
}

std::vector<Microserving::SessionPtr> Microserving::all_sessions() {
  const std::lock_guard lock(mutex_);
  // One that ended by itself has nobody else to forget it.
  std::erase_if(sessions_, [](const auto& entry) { return entry.second->closed(); });
  std::vector<SessionPtr> out;
  for (const auto& [id, session] : sessions_) out.push_back(session);
  return out;
}

EngineState Microserving::state() const {
  const engine::EngineStats stats = engine_.stats();
  const engine::EngineHealth health = engine_.health();
  return {.alive = health.alive,
          .ready = health.ready,
          .reason = health.reason,
          .n_running = stats.n_running,
          .n_waiting = stats.n_waiting,
          .blocks_free = stats.blocks.free,
          .blocks_used = stats.blocks.used,
          .blocks_cached = stats.blocks.cached,
          .blocks_leased = stats.blocks.leased};
}

int64_t Microserving::arrival(int64_t arrival_ns) const {
  const int64_t now = clock_.now_ns();
  return arrival_ns <= 0 ? now : std::min(arrival_ns, now);
}

void Microserving::on_round(bool idle) {
  for (const SessionPtr& session : with_news_) session->flush();
  with_news_.clear();
  if (!idle) return;
  // A router sees at once that nothing runs any more, also where no update says so.
  for (const SessionPtr& session : all_sessions()) session->tell_state();
}

void Microserving::beat() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (sessions_.empty()) {
      changed_.wait(lock);
      continue;
    }
    // Looked at twice a beat: a frame may have been written right after a look.
    changed_.wait_for(lock, options_.heartbeat / 2, [this] { return stopped_; });
    lock.unlock();
    for (const SessionPtr& session : all_sessions()) session->beat();
    lock.lock();
  }
}

void Microserving::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (heart_.joinable()) heart_.join();
  for (const SessionPtr& session : all_sessions()) session->end();
}

}  // namespace baton::server
