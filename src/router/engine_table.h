// What the router knows of its engines, and how much of its own work is in flight at each.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/engine_info.h"
#include "router/engine_link.h"

namespace baton::router {

/// Work of this router in flight at one engine. Exact: counted up and down by LoadTicket alone, so
/// that a figure pushed by an engine, late or never, doesn't decide anything.
struct EngineLoad {
  int n_requests = 0;
  int n_choices = 0;
  /// The engine said that it has no room: it is asked again at this time, or when something ends
  /// there.
  int64_t full_until_ns = 0;
};

/// One piece of work in flight at an engine: counted from construction to destruction, so no way to
/// end can forget it. Move-only; the load outlives it.
class LoadTicket {
 public:
  LoadTicket() = default;
  LoadTicket(EngineLoad& load, int n_choices) : load_(&load), n_choices_(n_choices) {
    ++load.n_requests;
    load.n_choices += n_choices;
  }
  LoadTicket(LoadTicket&& other) noexcept
      : load_(std::exchange(other.load_, nullptr)), n_choices_(other.n_choices_) {}
  LoadTicket& operator=(LoadTicket&& other) noexcept {
    std::swap(load_, other.load_);
    std::swap(n_choices_, other.n_choices_);
    return *this;
  }
  ~LoadTicket() {
    if (load_ == nullptr) return;
    --load_->n_requests;
    load_->n_choices -= n_choices_;
    load_->full_until_ns = 0;
  }

 private:
  EngineLoad* load_ = nullptr;
  int n_choices_ = 0;
};

/// What a supervisor says about an engine; shown at /engines. Decides nothing but whether an engine
/// that is lost hangs or has no process that serves.
struct SupervisedState {
  std::vector<int> cpus;
  int n_restarts = 0;
  std::string state;         ///< "starting", "dead", …; empty: nothing is known
  std::string last_error{};  ///< how its process ended, or why it could not start
};

struct Engine {
  std::string id;
  std::string url;
  EngineLink* link = nullptr;
  bool up = false;
  int64_t lost_ns = 0;                   ///< when it was last ready no more; of the injected clock
  std::optional<int64_t> hung_since_ns;  ///< without a sign of life since then
  EngineInfo info;                       ///< of the latest incarnation; incarnation 0 = never seen
  EngineState state;                     ///< of the latest frame
  std::string last_error;
  int n_incarnations = 0;  ///< seen here
  int n_restarts = 0;      ///< as the supervisor counts them, or incarnations after the first
  SupervisedState supervised;
  EngineLoad load;

  [[nodiscard]] bool ready() const { return up && state.alive && state.ready; }
  [[nodiscard]] bool can_decode() const { return ready() && info.role != Role::kPrefill; }
  [[nodiscard]] bool is_prefill() const { return ready() && info.role == Role::kPrefill; }
  /// A supervisor says that its process serves, but it doesn't answer or gets nowhere.
  [[nodiscard]] bool hangs() const { return supervised.state == "ready" && !(up && state.alive); }
  /// "engine 1 (decode)", for messages.
  [[nodiscard]] std::string title() const;
  /// "starting", "ready", "draining" or "dead".
  [[nodiscard]] std::string_view state_name() const;
};

/// KV of the one can be put into the other.
[[nodiscard]] bool can_hand_over(const Engine& prefill, const Engine& decode);

/// All engines by index. Owner: the router's core; addresses are stable.
class EngineTable {
 public:
  /// The index of the new engine.
  int add(std::string id, std::string url, EngineLink& link);
  [[nodiscard]] Engine& operator[](int engine) { return engines_[static_cast<size_t>(engine)]; }
  [[nodiscard]] const Engine& operator[](int engine) const {
    return engines_[static_cast<size_t>(engine)];
  }
  [[nodiscard]] int size() const { return static_cast<int>(engines_.size()); }
  /// Some engine can generate.
  [[nodiscard]] bool any_can_decode() const;
  /// Some engine that could generate has been here, if only once.
  [[nodiscard]] bool any_generator_seen() const;
  /// Empty: there is a full path (an engine of both roles, or a prefill and a decode engine that
  /// can hand over). Else what is missing.
  [[nodiscard]] std::string missing_for_path() const;
  /// The JSON array of GET /engines.
  [[nodiscard]] std::string json() const;

 private:
  std::deque<Engine> engines_;
};

}  // namespace baton::router
