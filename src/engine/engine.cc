#include "engine/engine.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/cpu.h"
#include "base/log.h"

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
      mailbox_(options.max_queue) {
  publish();
}

Engine::~Engine() { stop(); }

void Engine::start() {
  BATON_CHECK(phase_ == Phase::kCreated, "an engine starts once");
  phase_ = Phase::kRunning;
  thread_ = std::thread(&Engine::loop, this);
}

Status Engine::submit(TokenRequest request, UpdateSink sink) {
  if (auto status = core_->check(request); !status) return status;
  return mailbox_.submit({std::move(request), std::move(sink)}, clock_.now_ns());
}

void Engine::cancel(RequestId id, std::optional<int> choice) { mailbox_.cancel({id, choice}); }

bool Engine::drain(int64_t timeout_ns) {
  Phase running = Phase::kRunning;
  phase_.compare_exchange_strong(running, Phase::kDraining);
  mailbox_.close("the engine is draining and takes no new requests");
  return mailbox_.wait_until_idle(timeout_ns);
}

void Engine::stop() {
  stop_ = true;
  mailbox_.close("the engine has stopped");
  mailbox_.wake();
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
      // Without work it sleeps until a message comes; so does it if work were left that can't go
      // on, which health() then reports.
      worked = round(/*wait=*/!worked);
    } catch (const std::exception& e) {
      spdlog::critical("engine step failed: {}", e.what());
      core_->end_all(FinishReason::kError, "internal error");
      worked = true;
    }
  }
  for (Message& message : mailbox_.take(/*wait=*/false)) handle(message);
  core_->end_all(FinishReason::kCancelled, "the engine stopped before the request was complete");
  core_->emit();
  on_round_();
  publish();
}

bool Engine::round(bool wait) {
  for (Message& message : mailbox_.take(wait)) handle(message);
  // Cancels that came during the step have just taken back what it would have said.
  core_->emit();
  on_round_();
  const bool scheduled = core_->schedule();
  publish();
  if (scheduled) core_->run();
  return scheduled;
}

void Engine::handle(Message& message) {
  if (auto* submit = std::get_if<SubmitMessage>(&message)) {
    core_->add(std::move(submit->request), std::move(submit->sink));
  } else if (auto* cancel = std::get_if<CancelMessage>(&message)) {
    core_->cancel(cancel->id, cancel->choice);
  }
}

void Engine::publish() {
  core_->publish_metrics();
  EngineStats stats = core_->stats();
  stats.last_progress_ns = clock_.now_ns();
  {
    const std::lock_guard lock(stats_mutex_);
    stats_ = std::move(stats);
  }
  mailbox_.report({.n_left_queue = core_->n_left_queue(), .n_ended = core_->n_ended()});
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(stats_mutex_);
  return stats_;
}

EngineHealth Engine::health() const {
  const Phase phase = phase_;
  if (phase == Phase::kCreated) return {false, false, "the engine has not started"};
  if (phase == Phase::kStopped) return {false, false, "the engine has stopped"};
  const Mailbox::Pending pending = mailbox_.pending();
  const EngineStats now = stats();
  const int64_t quiet_ns = clock_.now_ns() - std::max(now.last_progress_ns, pending.since_ns);
  if (pending.n_requests > 0 && quiet_ns > stuck_after_ns_) {
    return {false, false,
            fmt::format("the step loop has made no progress for {} s with {} requests pending{}{}",
                        quiet_ns / 1'000'000'000, pending.n_requests,
                        now.last_error.empty() ? "" : "; last error: ", now.last_error)};
  }
  if (phase == Phase::kDraining) return {true, false, "the engine is draining"};
  return {};
}

}  // namespace baton::engine
