#include "supervisor/supervisor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/service_thread.h"

namespace baton::supervisor {
namespace {

constexpr std::string_view kWorldVariable = "BATON_SHMEM_INIT_CONFIG_JSON_STR";
constexpr std::string_view kKeyVariable = "BATON_INTERNAL_KEY";
// What an engine must not inherit: its own come from us, and clients' keys are the router's affair.
constexpr std::string_view kHidden[] = {kWorldVariable, kKeyVariable, "BATON_API_KEY"};

/// 128 random bits in hexadecimal.
Result<std::string> random_hex() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
    return fail(ErrorCode::kIo, "no randomness: {}", std::strerror(errno));
  }
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::vector<std::string> inherited_environment() {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool hidden = std::any_of(
        std::begin(kHidden), std::end(kHidden),
        [&](std::string_view variable) { return text.substr(0, text.find('=')) == variable; });
    if (!hidden) out.emplace_back(text);
  }
  return out;
}

EngineStatus initial_status(const EngineSpec& spec, int index) {
  EngineStatus status;
  status.index = index;
  status.name = spec.name;
  status.role = spec.role;
  status.cpus = spec.cpus;
  return status;
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options, Listener listener)
    : options_(std::move(options)), listener_(std::move(listener)) {
  for (const EngineSpec& spec : options_.engines) {
    const auto status = initial_status(spec, static_cast<int>(statuses_.size()));
    processes_.emplace_back(status, options_.process);
    statuses_.push_back(status);
  }
}

Result<std::unique_ptr<Supervisor>> Supervisor::create(SupervisorOptions options,
                                                       Listener listener) {
  BATON_CHECK(!options.engines.empty());
  std::unique_ptr<Supervisor> supervisor(new Supervisor(std::move(options), std::move(listener)));
  auto uid = random_hex();
  if (!uid) return tl::unexpected(uid.error());
  supervisor->uid_ = std::move(*uid);
  auto key = random_hex();
  if (!key) return tl::unexpected(key.error());
  supervisor->internal_key_ = std::move(*key);
  auto lifeline = Pipe::create();
  if (!lifeline) return tl::unexpected(lifeline.error());
  supervisor->lifeline_ = std::move(*lifeline);
  supervisor->wake_fd_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (supervisor->wake_fd_.get() < 0) {
    return fail(ErrorCode::kIo, "no eventfd: {}", std::strerror(errno));
  }
  std::signal(SIGCHLD, SIG_DFL);  // ignored, it would take the children's exit statuses away
  supervisor->thread_ = service_thread("supervisor", [s = supervisor.get()] { s->loop(); });
  return supervisor;
}

Supervisor::~Supervisor() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
    if (!stop_timeout_) stop_timeout_ = std::chrono::milliseconds(0);
  }
  wake();
  thread_.join();
}

Status Supervisor::start() {
  std::unique_lock lock(mutex_);
  BATON_CHECK(!start_wanted_, "a supervisor starts once");
  start_wanted_ = true;
  wake();
  changed_.wait(lock, [&] { return phase_ == Phase::kRunning || phase_ == Phase::kGone; });
  if (phase_ == Phase::kRunning) return {};
  return tl::unexpected(start_error_.value_or(
      Error{ErrorCode::kCancelled, "stopped before the engines were ready", false}));
}

void Supervisor::interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  wake();
}

void Supervisor::kill_hung(int engine, int n_restarts, std::string reason) {
  BATON_CHECK(engine >= 0 && static_cast<size_t>(engine) < options_.engines.size());
  const std::lock_guard lock(mutex_);
  hung_.push_back({engine, n_restarts, std::move(reason)});
  wake();
}

bool Supervisor::stop(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!stop_timeout_) stop_timeout_ = timeout;
  wake();
  changed_.wait(lock, [&] { return phase_ == Phase::kGone; });
  return !killed_;
}

std::vector<EngineStatus> Supervisor::engines() const {
  const std::lock_guard lock(mutex_);
  return statuses_;
}

void Supervisor::wake() const {
  const uint64_t one = 1;
  (void)!::write(wake_fd_.get(), &one, sizeof(one));
}

void Supervisor::set_phase(Phase phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  changed_.notify_all();
}

void Supervisor::loop() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (true) {
    next_phase();
    {
      const std::lock_guard lock(mutex_);
      if (quit_ && phase_ == Phase::kGone) return;
    }
    wait_for_something();
    for (EngineProcess& process : processes_) look_after(process);
  }
}

void Supervisor::wait_for_something() {
  const Phase phase = phase_;
  std::vector<pollfd> fds{{wake_fd_.get(), POLLIN, 0}};
  std::optional<Clock::time_point> deadline;
  if (phase == Phase::kStopping) deadline = kill_at_;
  for (const EngineProcess& process : processes_) {
    for (const int fd : process.poll_fds()) fds.push_back({fd, POLLIN, 0});
    const auto due = process.deadline();
    const bool counts =
        phase == Phase::kRunning || (phase == Phase::kStarting && process.running());
    if (counts && due && (!deadline || *due < *deadline)) deadline = due;
  }
  int timeout_ms = -1;
  if (deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
    timeout_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
  }
  ::poll(fds.data(), fds.size(), timeout_ms);
  uint64_t n_wakes = 0;
  (void)!::read(wake_fd_.get(), &n_wakes, sizeof(n_wakes));
}

void Supervisor::next_phase() {
  bool start = false;
  bool interrupted = false;
  std::optional<std::chrono::milliseconds> stop_timeout;
  {
    const std::lock_guard lock(mutex_);
    start = start_wanted_;
    interrupted = interrupted_;
    stop_timeout = stop_timeout_;
  }
  switch (phase_) {
    case Phase::kCreated:
      if (stop_timeout || (start && interrupted)) {
        set_phase(Phase::kGone);
      } else if (start) {
        begin();
      }
      break;
    case Phase::kStarting:
      stop_timeout || interrupted ? kill_all() : check_start();
      break;
    case Phase::kRunning:
      if (stop_timeout) {
        terminate_all(*stop_timeout);
      } else {
        kill_the_hung();
        restart_the_dead();
      }
      break;
    case Phase::kStopping:
      if (Clock::now() >= kill_at_) kill_all();
      break;
    case Phase::kKilling:
    case Phase::kGone:
      break;
  }
  const bool ending = phase_ == Phase::kStopping || phase_ == Phase::kKilling;
  if (ending && std::none_of(processes_.begin(), processes_.end(),
                             [](const EngineProcess& process) { return process.running(); })) {
    set_phase(Phase::kGone);
  }
}

void Supervisor::begin() {
  set_phase(Phase::kStarting);
  for (EngineProcess& process : processes_) spawn(process);
  check_start();
}

void Supervisor::check_start() {
  if (auto failure = start_failure()) {
    {
      const std::lock_guard lock(mutex_);
      start_error_ = std::move(failure);
    }
    kill_all();
  } else if (std::all_of(processes_.begin(), processes_.end(), [](const EngineProcess& process) {
               return process.status().state == ProcessState::kReady;
             })) {
    set_phase(Phase::kRunning);
  }
}

std::optional<Error> Supervisor::start_failure() const {
  const EngineProcess* failed = nullptr;
  std::string not_ready;
  for (const EngineProcess& process : processes_) {
    const EngineStatus& status = process.status();
    if (status.last_error.empty()) {
      if (status.state != ProcessState::kStarting) continue;
      not_ready += (not_ready.empty() ? "" : ", ") + status.name;
    } else if (failed == nullptr || failed->error_code() == ErrorCode::kUnavailable) {
      failed = &process;  // one that waited for others in vain is not the cause if there is one
    }
  }
  if (failed == nullptr) return std::nullopt;
  Error error{failed->error_code(),
              fmt::format("{}: {}", failed->status().name, failed->status().last_error), false};
  if (error.code == ErrorCode::kUnavailable && !not_ready.empty()) {
    error.message += "; not ready either: " + not_ready;
  }
  return error;
}

void Supervisor::restart_the_dead() {
  for (EngineProcess& process : processes_) {
    if (process.restart_is_due(Clock::now())) spawn(process);
  }
}

void Supervisor::kill_the_hung() {
  std::vector<Hung> hung;
  {
    const std::lock_guard lock(mutex_);
    hung.swap(hung_);
  }
  for (const Hung& one : hung) {
    EngineProcess& process = processes_[static_cast<size_t>(one.engine)];
    const EngineStatus& status = process.status();
    if (status.state != ProcessState::kReady || status.restarts != one.n_restarts) continue;
    process.kill_hung(one.reason);
  }
}

void Supervisor::terminate_all(std::chrono::milliseconds timeout) {
  kill_at_ = Clock::now() + timeout;
  set_phase(Phase::kStopping);
  for (EngineProcess& process : processes_) {
    process.terminate();
    publish(process);
  }
}

void Supervisor::kill_all() {
  bool any = false;
  for (EngineProcess& process : processes_) {
    any = any || process.running();
    process.kill();
  }
  const std::lock_guard lock(mutex_);
  killed_ = any && phase_ == Phase::kStopping;
  phase_ = Phase::kKilling;
}

void Supervisor::look_after(EngineProcess& engine) {
  if (!engine.look(Clock::now())) return;
  const EngineStatus& status = engine.status();
  if (status.state == ProcessState::kDead && phase_ == Phase::kRunning) {
    spdlog::warn("{} {}; starting it again", status.name, status.last_error);
  }
  publish(engine);
}

void Supervisor::spawn(EngineProcess& engine) {
  const EngineStatus& status = engine.status();
  Command command;
  command.program = options_.program;
  command.arguments = {options_.program_name};
  const auto& arguments = options_.engines[static_cast<size_t>(status.index)].arguments;
  command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
  command.environment = environment(status);
  engine.spawn(command, lifeline_.read_end.get(), Clock::now());
  publish(engine);
}

std::vector<std::string> Supervisor::environment(const EngineStatus& engine) const {
  auto out = inherited_environment();
  if (options_.npes > 0) {
    const nlohmann::json world{
        {"uid", uid_},
        {"npes", options_.npes},
        {"pe_start", options_.engines[static_cast<size_t>(engine.index)].pe_start},
        {"join", phase_ == Phase::kStarting ? "first" : "later"}};
    out.push_back(fmt::format("{}={}", kWorldVariable, world.dump()));
  }
  out.push_back(fmt::format("{}={}", kKeyVariable, internal_key_));
  return out;
}

void Supervisor::publish(const EngineProcess& engine) {
  const EngineStatus& status = engine.status();
  {
    const std::lock_guard lock(mutex_);
    statuses_[static_cast<size_t>(status.index)] = status;
  }
  if (listener_) listener_(status);
}

}  // namespace baton::supervisor
