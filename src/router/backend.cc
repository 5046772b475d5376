#include "router/backend.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/service_thread.h"

namespace baton::router {

Result<std::unique_ptr<RouterBackend>> RouterBackend::create(RouterBackendOptions options,
                                                             const Deps& deps) {
  std::set<std::string> ids;
  for (const EngineAddress& engine : options.engines) {
    if (!ids.insert(engine.id).second) {
      return fail(ErrorCode::kInvalidArgument, "router: two engines are called '{}'", engine.id);
    }
  }
  auto core =
      RouterCore::create(options.router, {deps.clock, deps.metrics, deps.trace, deps.on_hang});
  if (!core) return tl::unexpected(core.error());
  return std::unique_ptr<RouterBackend>(
      new RouterBackend(std::move(options), deps, std::move(*core)));
}

RouterBackend::RouterBackend(RouterBackendOptions options, const Deps& deps,
                             std::unique_ptr<RouterCore> core)
    : options_(std::move(options)), clock_(deps.clock), core_(std::move(core)) {
  for (const EngineAddress& engine : options_.engines) {
    const int index = static_cast<int>(links_.size());
    links_.push_back(deps.make_link({.engine = index,
                                     .listener = *core_,
                                     .post = [this](Task task) { post(std::move(task)); }}));
    core_->add_engine(engine.id, engine.url, *links_.back());
  }
}

RouterBackend::~RouterBackend() { stop(); }

void RouterBackend::guarded(const Task& task) {
  try {
    task();
  } catch (const std::exception& e) {
    spdlog::critical("router: {}", e.what());
  }
}

void RouterBackend::start() {
  post([this] {
    for (size_t i = 0; i < links_.size(); ++i) links_[i]->connect(options_.engines[i].url);
  });
  thread_ = service_thread("router", [this] { loop(); });
}

Status RouterBackend::submit(TokenRequest request, UpdateSink sink) {
  if (Status ok = RouterCore::check_shape(request); !ok) return ok;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return fail(ErrorCode::kUnavailable, "{}", *closed_);
    if (Status ok = core_->check_room(published_.accepts_until_ns, published_.missing,
                                      published_.n_queued + n_submits_);
        !ok) {
      return ok;
    }
    push_locked([this, request = std::move(request), sink = std::move(sink)]() mutable {
      ++n_submits_taken_;
      core_->add(std::move(request), sink);
    });
    ++n_submits_;
  }
  arrived_.notify_one();
  return {};
}

void RouterBackend::cancel(RequestId id, std::optional<int> choice) {
  post([this, id, choice] { core_->cancel(id, choice); });
}

frontend::BackendHealth RouterBackend::health() const {
  const std::lock_guard lock(mutex_);
  frontend::BackendHealth out;
  if (closed_) {
    out.ready = false;
    out.reason = *closed_;
  } else if (!published_.missing.empty()) {
    out.ready = false;
    out.reason = published_.missing;
  }
  const bool seen = published_.accepts_until_ns != 0;
  if (seen && clock_.now_ns() >= published_.accepts_until_ns) {
    out.alive = false;
    out.reason = published_.missing + ", for longer than requests wait for one";
  }
  if (busy_since_ns_ != 0 && clock_.now_ns() - busy_since_ns_ > options_.stuck_after_ns) {
    out.alive = false;
    out.ready = false;
    out.reason = fmt::format("the router's thread has been stuck for more than {} s",
                             options_.stuck_after_ns / 1'000'000'000);
  }
  return out;
}

bool RouterBackend::set_engine(const std::string& id, const std::string& url,
                               SupervisedState state) {
  const auto it = std::find_if(options_.engines.begin(), options_.engines.end(),
                               [&](const EngineAddress& one) { return one.id == id; });
  if (it == options_.engines.end()) return false;
  const auto index = static_cast<size_t>(it - options_.engines.begin());
  post([this, index, url, state = std::move(state)]() mutable {
    core_->set_supervised(static_cast<int>(index), url, std::move(state));
    links_[index]->connect(url);
  });
  return true;
}

void RouterBackend::ask(std::function<void(const RouterCore&)> task) {
  post([this, task = std::move(task)] { task(*core_); });
}

bool RouterBackend::drain(int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  if (!closed_) closed_ = "the server is shutting down";
  return idle_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                        [this] { return published_.n_requests == 0 && n_submits_ == 0; });
}

void RouterBackend::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) closed_ = "the server is shutting down";
    stop_ = true;
  }
  arrived_.notify_one();
  if (thread_.joinable()) thread_.join();
  links_.clear();
  // What is left are questions; whoever asked learns it by their end.
  std::vector<Task> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(tasks_);
  }
}

void RouterBackend::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    push_locked(std::move(task));
  }
  arrived_.notify_one();
}

void RouterBackend::push_locked(Task task) {
  tasks_.push_back(std::move(task));
  if (busy_since_ns_ == 0) busy_since_ns_ = clock_.now_ns();
}

void RouterBackend::loop() {
  for (bool stopping = false; !stopping;) {
    Taken taken = take();
    stopping = taken.stop;
    // Ours throws nothing, but memory may run out below us: one request must not end them all.
    for (Task& task : taken.tasks) guarded(task);
    taken.tasks.clear();
    guarded([&] {
      if (stopping) return core_->end_all("the server is shutting down");
      for (const auto& link : links_) link->tick();
      core_->tick();
    });
    publish(std::exchange(n_submits_taken_, 0));
  }
}

RouterBackend::Taken RouterBackend::take() {
  std::optional<int64_t> deadline = core_->deadline();
  for (const auto& link : links_) {
    const auto other = link->deadline();
    if (other) deadline = std::min(deadline.value_or(*other), *other);
  }
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return stop_ || !tasks_.empty(); };
  if (deadline) {
    const int64_t wait_ns = std::max<int64_t>(*deadline - clock_.now_ns(), 0);
    arrived_.wait_for(lock, std::chrono::nanoseconds(wait_ns), ready);
  } else {
    arrived_.wait(lock, ready);
  }
  if (busy_since_ns_ == 0) busy_since_ns_ = clock_.now_ns();
  return {std::exchange(tasks_, {}), stop_};
}

void RouterBackend::publish(size_t n_submits) {
  std::string missing = core_->engines().missing_for_path();
  bool idle = false;
  {
    const std::lock_guard lock(mutex_);
    n_submits_ -= n_submits;
    published_ = {std::move(missing), core_->accepts_until_ns(), core_->n_queued(),
                  core_->n_requests()};
    busy_since_ns_ = tasks_.empty() ? 0 : clock_.now_ns();
    idle = published_.n_requests == 0 && n_submits_ == 0;
  }
  if (idle) idle_.notify_all();
}

}  // namespace baton::router
