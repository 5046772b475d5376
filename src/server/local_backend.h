// The Backend of a lone engine: the frontend's requests go to the engine of this process.
#pragma once

#include "engine/engine.h"
#include "frontend/backend.h"

namespace baton::server {

/// Thread-safe. The engine outlives it.
class LocalBackend final : public frontend::Backend {
 public:
  explicit LocalBackend(engine::Engine& engine) : engine_(engine) {}

  [[nodiscard]] Status submit(TokenRequest request, UpdateSink sink) override {
    return engine_.submit(std::move(request), std::move(sink));
  }
  void cancel(RequestId id, std::optional<int> choice) override { engine_.cancel(id, choice); }
  [[nodiscard]] frontend::BackendHealth health() const override {
    const auto health = engine_.health();
    return {health.alive, health.ready, health.reason};
  }

 private:
  engine::Engine& engine_;
};

}  // namespace baton::server
