#include "engine/engine.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/service_thread.h"

namespace baton::engine {

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, const EngineDeps& deps,
                                               int cpu) {
  auto core = EngineCore::create(options, deps);
  if (!core) return tl::unexpected(core.error());
  return std::unique_ptr<Engine>(new Engine(options, deps, std::move(*core), cpu));
}

Engine::Engine(const EngineOptions& options, const EngineDeps& deps,
               std::unique_ptr<EngineCore> core, int cpu)
    : stuck_after_ns_(options.stuck_after_ns),
      clock_(*deps.clock),
      cpu_(cpu),
      core_(std::move(core)),
      mailbox_(std::make_shared<Mailbox>(options.max_queue)) {
  if (deps.heap != nullptr) {
    deps.heap->set_listener([mailbox = mailbox_] { mailbox->wake(); });
  }
  publish();
}

Engine::~Engine() { stop(); }

void Engine::start() {
  BATON_CHECK(phase_ == Phase::kCreated, "an engine starts once");
  phase_ = Phase::kRunning;
  thread_ = service_thread("engine", [this] { loop(); });
}

Status Engine::submit(TokenRequest request, UpdateSink sink) {
  if (auto status = core_->check(request); !status) return status;
  if (request.leased) {
    const std::lock_guard lock(stats_mutex_);
    const LeaseId lease = request.leased->lease;
    if (std::find(open_leases_.begin(), open_leases_.end(), lease) == open_leases_.end()) {
      return fail(ErrorCode::kNotFound, "lease {} is not open (any more)", lease.value);
    }
  }
  return mailbox_->submit(SubmitMessage{std::move(request), std::move(sink)}, clock_.now_ns());
}

void Engine::prepare_receive(PrepareReceive request,
                             std::function<void(Result<PreparedReceive>)> done) {
  Status status = core_->check(request);
  PrepareMessage message{std::move(request), std::move(done)};
  if (status) status = mailbox_->prepare(std::move(message), clock_.now_ns());
  if (!status) message.done(tl::unexpected(status.error()));
}

void Engine::release(LeaseId lease) { mailbox_->release({lease}, clock_.now_ns()); }

Status Engine::remote_send(RemoteSend request, std::function<void(Result<SentKv>)> done) {
  if (auto status = core_->check(request); !status) return status;
  request.received_ns = clock_.now_ns();
  return mailbox_->submit(SendMessage{std::move(request), std::move(done)}, clock_.now_ns());
}

void Engine::cancel(RequestId id, std::optional<int> choice) {
  mailbox_->cancel({id, choice}, clock_.now_ns());
}

bool Engine::drain(int64_t timeout_ns) {
  Phase running = Phase::kRunning;
  phase_.compare_exchange_strong(running, Phase::kDraining);
  mailbox_->close("the engine is draining and takes no new requests");
  return mailbox_->wait_until_idle(timeout_ns);
}

void Engine::stop() {
  stop_ = true;
  mailbox_->close("the engine has stopped");
  mailbox_->wake();
  if (thread_.joinable()) thread_.join();
  phase_ = Phase::kStopped;
}

void Engine::loop() {
  if (cpu_ >= 0 && !pin_this_thread(cpu_)) {
    spdlog::warn("engine thread: CPU {} is not ours to use, running unpinned", cpu_);
  }
  bool worked = true;
  while (!stop_) {
    try {
      // Without work it sleeps until a message comes, a bell rings or a lease has to be looked at;
      // so does it if work were left that can't go on, which health() then reports.
      worked = round(/*wait=*/!worked);
    } catch (const std::exception& e) {
      spdlog::critical("engine step failed: {}", e.what());
      core_->end_all(FinishReason::kError, "internal error");
      worked = true;
    }
  }
  for (Message& message : mailbox_->take()) refuse(message);
  core_->end_all(FinishReason::kCancelled, "the engine stopped before the request was complete");
  core_->emit();
  publish();
  on_round_(/*idle=*/true);
}

bool Engine::round(bool wait) {
  for (Message& message : take(wait)) {
    try {
      handle(message);
    } catch (const std::exception& e) {
      // Memory ran out below us. The others of the batch have nothing to do with it.
      spdlog::critical("engine: a message failed: {}", e.what());
    }
  }
  // Cancels that came during the step have just taken back what it would have said.
  core_->emit();
  const bool scheduled = core_->schedule();
  publish();
  on_round_(/*idle=*/!scheduled);
  if (scheduled) core_->run();
  return scheduled || core_->has_updates();
}

std::vector<Message> Engine::take(bool wait) {
  if (!wait) return mailbox_->take();
  std::optional<int64_t> timeout_ns = core_->next_poll_ns();
  if (timeout_ns) timeout_ns = std::max<int64_t>(0, *timeout_ns - clock_.now_ns());
  return mailbox_->wait_and_take(timeout_ns);
}

void Engine::handle(Message& message) {
  if (auto* submit = std::get_if<SubmitMessage>(&message)) {
    core_->add(std::move(submit->request), submit->sink);
  } else if (auto* send = std::get_if<SendMessage>(&message)) {
    core_->add(std::move(send->request), send->done);
  } else if (auto* prepare = std::get_if<PrepareMessage>(&message)) {
    auto prepared = core_->prepare(prepare->request);
    if (prepared) {
      const std::lock_guard lock(stats_mutex_);
      open_leases_.push_back(prepared->lease);
    }
    prepare->done(std::move(prepared));
  } else if (auto* release = std::get_if<ReleaseMessage>(&message)) {
    core_->release(release->lease);
  } else if (auto* cancel = std::get_if<CancelMessage>(&message)) {
    core_->cancel(cancel->id, cancel->choice);
  }
}

// The thread is about to end: what asks for memory to write into, or to be written, is too late.
void Engine::refuse(Message& message) {
  if (auto* prepare = std::get_if<PrepareMessage>(&message)) {
    prepare->done(fail(ErrorCode::kUnavailable, "the engine has stopped"));
  } else {
    handle(message);
  }
}

void Engine::publish() {
  core_->publish_metrics();
  EngineStats stats = core_->stats();
  stats.last_progress_ns = clock_.now_ns();
  {
    const std::lock_guard lock(stats_mutex_);
    stats_ = std::move(stats);
    open_leases_ = core_->open_leases();
  }
  mailbox_->report({.n_left_queue = core_->n_left_queue(), .n_ended = core_->n_ended()});
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(stats_mutex_);
  return stats_;
}

EngineHealth Engine::health() const {
  const Phase phase = phase_;
  if (phase == Phase::kCreated) return {false, false, "the engine has not started"};
  if (phase == Phase::kStopped) return {false, false, "the engine has stopped"};
  const Mailbox::Pending pending = mailbox_->pending();
  const EngineStats now = stats();
  const int64_t quiet_ns = clock_.now_ns() - std::max(now.last_progress_ns, pending.since_ns);
  if (pending.any() && quiet_ns > stuck_after_ns_) {
    return {false, false,
            fmt::format("the step loop has made no progress for {} s with {} pending{}{}",
                        quiet_ns / 1'000'000'000,
                        pending.n_requests > 0 ? fmt::format("{} requests", pending.n_requests)
                                               : fmt::format("{} messages", pending.n_messages),
                        now.last_error.empty() ? "" : "; last error: ", now.last_error)};
  }
  if (phase == Phase::kDraining) return {true, false, "the engine is draining"};
  return {};
}

}  // namespace baton::engine
