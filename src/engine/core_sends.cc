// EngineCore's part in sends: how they begin and how they end.
#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "engine/core.h"

namespace baton::engine {
namespace {

using SentSink = std::function<void(Result<SentKv>)>;

/// Not ours, so it may throw; nothing of ours hangs on it any more.
void call(const SentSink& done, Result<SentKv> result) {
  try {
    done(std::move(result));
  } catch (const std::exception& e) {
    spdlog::error("a send's callback failed: {}", e.what());
  }
}

template <typename Sequences>
std::vector<Request*> sends_of(const Sequences& sequences) {
  std::vector<Request*> sends;
  for (const Sequence* sequence : sequences) {
    if (sequence->request->send) sends.push_back(sequence->request);
  }
  return sends;
}

}  // namespace

void EngineCore::add(RemoteSend request, const SentSink& done) {
  const RequestId id = request.id;
  try {
    enqueue(std::move(request), done);
  } catch (const std::exception& e) {
    abandon(id);
    spdlog::critical("send {:016x}: not queued: {}", id.value, e.what());
    call(done, fail(ErrorCode::kInternal, "internal error: the send could not be queued"));
  }
}

void EngineCore::enqueue(RemoteSend request, const SentSink& done) {
  auto send = sender_.open(request);
  // Nothing to put, and nothing of it wanted.
  const bool empty =
      request.begin == request.end && (!request.n_prompt_logprobs || request.end == 0);
  if (!send || empty) {
    // It has never been in the queue.
    ++n_refused_;
    ++n_ended_;
    if (!send) return call(done, tl::unexpected(send.error()));
    SentKv nothing;
    if (request.n_prompt_logprobs) nothing.prompt_logprobs.resize(1);
    return call(done, std::move(nothing));
  }
  (*send)->done = done;
  auto state = std::make_unique<Request>();
  state->send = std::move(*send);
  // What came before is not this engine's queue.
  state->submitted_ns = request.received_ns != 0 ? request.received_ns : deps_.clock->now_ns();
  state->spec.id = request.id;
  state->spec.prompt = std::move(request.prompt);
  state->spec.max_tokens = 0;
  state->spec.n_prompt_logprobs = request.n_prompt_logprobs;
  state->spec.priority = request.priority;
  state->spec.arrival_ns = request.arrival_ns;
  state->spec.label = std::move(request.label);
  scheduler_.add(std::move(state));
}

void EngineCore::touch_sends() {
  std::vector<Request*> sends = sends_of(scheduler_.running());
  const std::vector<Request*> waiting = sends_of(scheduler_.waiting());
  sends.insert(sends.end(), waiting.begin(), waiting.end());
  for (Request* request : sends) {
    const Status status = sender_.touch(*request->send);
    if (!status) end_send(*request, tl::unexpected(status.error()));
  }
}

void EngineCore::finish_sends() {
  const std::vector<Request*> sends = sends_of(scheduler_.running());
  for (Request* request : sends) {
    Send& send = *request->send;
    const Sequence& sequence = *request->choices.front();
    send.n_put = std::max(send.n_put, sequence.n_computed);
    if (!send.error && sequence.n_left() == 0) {
      if (auto status = sender_.signal(send); !status) send.error = status.error();
    }
    if (send.error) {
      end_send(*request, tl::unexpected(*send.error));
    } else if (sequence.n_left() == 0) {
      end_send(*request, sent(*request));
    }
  }
}

SentKv EngineCore::sent(Request& request) {
  SentKv out = std::move(request.send->sent);
  const int64_t admitted_ns = request.admitted_ns.value_or(request.submitted_ns);
  out.n_cached_tokens = request.n_cached_tokens;
  out.queue_ns = std::max<int64_t>(0, admitted_ns - request.submitted_ns);
  out.prefill_ns = deps_.clock->now_ns() - admitted_ns;
  metrics_.prefilled(out.prefill_ns);
  if (request.spec.n_prompt_logprobs) {
    out.prompt_logprobs = std::move(request.prompt_logprobs);
    out.prompt_logprobs.resize(static_cast<size_t>(request.send->end) + 1);
  }
  return out;
}

void EngineCore::end_send(Request& request, Result<SentKv> result) {
  const SentSink done = std::move(request.send->done);
  if (!result && result.error().code != ErrorCode::kCancelled) {
    spdlog::warn("send of {}: {}", request.label(), result.error().message);
  }
  scheduler_.finish(*request.choices.front());
  scheduler_.erase(request.spec.id);
  ++n_ended_;
  call(done, std::move(result));
}

}  // namespace baton::engine
