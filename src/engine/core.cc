#include "engine/core.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "engine/handoff.h"
#include "kv/layout.h"

namespace baton::engine {
namespace {

// Logits of echoed prompts that one step may hold. 64 MiB are 64 rows of a vocabulary of 256k.
constexpr size_t kPromptLogitBytes = size_t{64} << 20;

int max_prompt_logits(const EngineOptions& options, int n_vocab) {
  const size_t rows = kPromptLogitBytes / (sizeof(float) * static_cast<size_t>(n_vocab));
  return std::clamp(static_cast<int>(std::min<size_t>(rows, 1 << 20)), kv::kBlockTokens,
                    options.max_batched_tokens);
}

Status check_options(const EngineOptions& options) {
  const auto bad = ErrorCode::kInvalidArgument;
  if (options.max_batch < 1)
    return fail(bad, "--max-batch {}: must be at least 1", options.max_batch);
  if (options.max_queue < 1)
    return fail(bad, "max_queue {}: must be at least 1", options.max_queue);
  if (options.prefill_min_tokens < 1) {
    return fail(bad, "--remote-prefill-min-tokens {}: must be at least 1",
                options.prefill_min_tokens);
  }
  if (options.context_tokens < 0) {
    return fail(bad, "--context {}: must be positive", options.context_tokens);
  }
  if (options.kv_type != TensorType::kBF16 && options.kv_type != TensorType::kF32) {
    return fail(bad, "--kv-dtype: must be bf16 or f32");
  }
  if (options.mixed_prefill_tokens < kv::kBlockTokens) {
    return fail(bad, "--mixed-prefill-tokens {}: must be at least {}", options.mixed_prefill_tokens,
                kv::kBlockTokens);
  }
  // With every row of the batch decoding, one block of a prompt still has to fit.
  const int64_t least = int64_t{options.max_batch} + kv::kBlockTokens;
  if (options.max_batched_tokens < least) {
    return fail(bad, "--max-batched-tokens {}: must be at least --max-batch ({}) + {} = {}",
                options.max_batched_tokens, options.max_batch, kv::kBlockTokens, least);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<EngineCore>> EngineCore::create(const EngineOptions& options,
                                                       const EngineDeps& deps) {
  if (auto status = check_options(options); !status) return tl::unexpected(status.error());
  const auto planned = plan_kv(options, *deps.model);
  if (!planned) return tl::unexpected(planned.error());
  EngineLimits limits{.context_tokens = deps.model->context_length(),
                      .n_vocab = deps.model->n_vocab(),
                      .n_blocks = planned->n_blocks,
                      .block_tokens = planned->block_tokens,
                      .layout_hash = kv::layout_hash(*planned, options.model_identity)};
  if (options.context_tokens > 0) {
    limits.context_tokens = std::min(limits.context_tokens, options.context_tokens);
  }
  const int kv_tokens = limits.n_blocks * kv::kBlockTokens;
  if (kv_tokens < limits.context_tokens) {
    spdlog::warn("--kv-memory holds {} tokens: the context is cut from {} to that", kv_tokens,
                 limits.context_tokens);
    limits.context_tokens = kv_tokens;
  }
  auto memory = deps.heap == nullptr
                    ? KvMemory::create(*planned)
                    : KvMemory::create(*planned, deps.heap->local(deps.heap->first_pe()));
  if (!memory) return tl::unexpected(memory.error());
  std::unique_ptr<EngineCore> core(new EngineCore(options, deps, limits, std::move(*memory)));
  const size_t n_rows = static_cast<size_t>(options.max_batch + core->max_prompt_logits_);
  auto logits = MappedMemory::create(n_rows * static_cast<size_t>(limits.n_vocab) * sizeof(float),
                                     "logits (--max-batch)");
  if (!logits) return tl::unexpected(logits.error());
  core->logits_ = std::move(*logits);
  deps.model->bind_kv(core->memory_.layout(), core->memory_.data());
  return core;
}

EngineCore::EngineCore(const EngineOptions& options, const EngineDeps& deps,
                       const EngineLimits& limits, KvMemory memory)
    : options_(options),
      deps_(deps),
      limits_(limits),
      memory_(std::move(memory)),
      cache_(limits.n_blocks, limits.block_tokens, options.prefix_hash_seed),
      scheduler_({.role = options.role,
                  .max_batch = options.max_batch,
                  .prefill_min_tokens = options.prefill_min_tokens,
                  .exact_prefix = options.exact_prefix},
                 cache_, memory_),
      metrics_(*deps.metrics, options, limits),
      post_({.context_tokens = limits.context_tokens, .n_vocab = limits.n_vocab, .pool = deps.pool},
            scheduler_, metrics_),
      sender_(options, limits,
              {.heap = deps.heap,
               .clock = deps.clock,
               .trace = deps.trace,
               .memory = &memory_,
               .metrics = &metrics_}),
      receive_(
          options, limits,
          {.heap = deps.heap, .clock = deps.clock, .cache = &cache_, .scheduler = &scheduler_}),
      prefill_(options.mixed_prefill_tokens),
      max_prompt_logits_(max_prompt_logits(options, limits.n_vocab)) {}

Status EngineCore::check(const TokenRequest& request) const {
  const auto bad = ErrorCode::kInvalidArgument;
  if (options_.role == Role::kPrefill) {
    return fail(ErrorCode::kUnsupported, "a prefill engine generates nothing: it takes sends only");
  }
  if (request.prompt.empty()) return fail(bad, "the prompt is empty");
  if (request.n_choices < 1) return fail(bad, "n {}: must be at least 1", request.n_choices);
  const int least = request.n_prompt_logprobs ? 0 : 1;
  if (request.max_tokens < least) {
    return fail(bad, "max_tokens {}: must be at least {}", request.max_tokens, least);
  }
  if (auto status = check_tokens(request.prompt, limits_.n_vocab, "prompt token"); !status) {
    return status;
  }
  if (auto status = check_output(request); !status) return status;
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    auto status = check_tokens(std::span(&id, 1), limits_.n_vocab, "logit_bias token");
    if (!status) return status;
  }
  for (const auto* ids : {&request.eos_ids, &request.stop_ids}) {
    if (auto status = check_tokens(*ids, limits_.n_vocab, "stop token"); !status) return status;
  }
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  if (n_prompt + request.max_tokens > limits_.context_tokens) {
    return fail(bad, "prompt ({} tokens) + max_tokens ({}) is over the context of {} tokens",
                n_prompt, request.max_tokens, limits_.context_tokens);
  }
  return {};
}

// What a choice that moves here has generated elsewhere.
Status EngineCore::check_output(const TokenRequest& request) const {
  const auto bad = ErrorCode::kInvalidArgument;
  if (request.first_choice < 0) {
    return fail(bad, "first_choice {}: must not be negative", request.first_choice);
  }
  if (request.output.empty()) return {};
  if (request.n_choices != 1) {
    return fail(bad, "n {}: a request with output has one choice", request.n_choices);
  }
  if (request.output.size() >= static_cast<size_t>(request.max_tokens)) {
    return fail(bad, "output of {} tokens: max_tokens ({}) leaves nothing to generate",
                request.output.size(), request.max_tokens);
  }
  return check_tokens(request.output, limits_.n_vocab, "output token");
}

void EngineCore::add(TokenRequest request, const UpdateSink& sink) {
  const RequestId id = request.id;
  const int first = request.first_choice;
  const int n = request.n_choices;
  try {
    enqueue(std::move(request), sink);
  } catch (const std::exception& e) {
    abandon(id);
    spdlog::critical("request {:016x}: not queued: {}", id.value, e.what());
    sink(failed_update(id, first, n, "internal error: the request could not be queued"));
  }
}

void EngineCore::abandon(RequestId id) {
  ++n_ended_;
  Request* held = scheduler_.find(id);
  if (held == nullptr) {
    ++n_refused_;
    return;
  }
  // From the back: the last choice has nobody to hand anything over to.
  for (auto it = held->choices.rbegin(); it != held->choices.rend(); ++it) {
    scheduler_.finish(**it);
  }
  scheduler_.erase(id);
}

void EngineCore::enqueue(TokenRequest request, const UpdateSink& sink) {
  auto state = std::make_unique<Request>();
  state->submitted_ns = request.arrival_ns != 0 ? request.arrival_ns : deps_.clock->now_ns();
  state->spec = std::move(request);
  // They went out before the first token did.
  if (!state->spec.output.empty()) state->spec.n_prompt_logprobs.reset();
  state->sink = sink;
  Request& added = *state;
  scheduler_.add(std::move(state));
  if (!added.spec.leased) return;
  const Status started = receive_.start(added);
  if (started) return;
  const bool gone = started.error().code == ErrorCode::kNotFound;
  for (const auto& sequence : added.choices) {
    post_.fail_choice(*sequence, started.error().message,
                      gone ? FinishReason::kGivenUp : FinishReason::kError, started.error().code);
  }
}

void EngineCore::cancel(RequestId id, std::optional<int> choice) {
  Request* request = scheduler_.find(id);
  if (request == nullptr) return;
  if (request->send) {
    end_send(*request, fail(ErrorCode::kCancelled, "the send was cancelled"));
    return;
  }
  const auto meant = [&](int c) { return !choice || *choice == c; };
  for (const auto& sequence : request->choices) {
    if (meant(sequence->choice)) scheduler_.finish(*sequence);
  }
  auto& events = request->update.events;
  events.erase(std::remove_if(events.begin(), events.end(),
                              [&](const TokenEvent& event) { return meant(event.choice); }),
               events.end());
  if (request->finished() && events.empty()) {
    scheduler_.erase(id);
    ++n_ended_;
  }
  receive_.drop_orphans();
}

bool EngineCore::schedule() {
  step_begin_ns_ = deps_.clock->now_ns();
  batch_ = Batch{};
  batch_.tokens_left = options_.max_batched_tokens;
  batch_.prompt_logits_left = max_prompt_logits_;
  touch_sends();
  for (Action* action : actions_) action->plan(scheduler_, batch_);
  end_lost();
  note_admissions();
  return !batch_.empty();
}

void EngineCore::end_lost() {
  for (const Loss& loss : scheduler_.take_lost()) {
    post_.fail_choice(*loss.sequence, loss.why, FinishReason::kGivenUp, loss.code);
  }
}

void EngineCore::run() {
  for (Sequence* sequence : batch_.cached_sends) sender_.put_cached(*sequence);
  if (!batch_.items.empty()) run_items();
  finish_sends();
}

void EngineCore::run_items() {
  auto* logits = reinterpret_cast<float*>(logits_.data());
  if (!forward(batch_.items, logits)) {
    forward_one_by_one();
  } else if (sender_.gave_up_pass()) {
    return;  // finish_sends() ends what it was for
  }
  const int64_t end_ns = deps_.clock->now_ns();
  post_.apply(batch_, logits, end_ns);
  ++n_steps_;
  metrics_.step(batch_, end_ns - step_begin_ns_);
  trace_step(end_ns);
}

bool EngineCore::forward(std::span<const BatchItem> items, float* logits) {
  // Ours throws nothing, but memory may run out below us: no exception may end the engine thread.
  try {
    std::vector<model::SeqSlice> slices;
    slices.reserve(items.size());
    for (const BatchItem& item : items) {
      const Sequence& sequence = *item.sequence;
      slices.push_back({.blocks = sequence.table,
                        .begin = item.begin,
                        .tokens = std::span(sequence.tokens)
                                      .subspan(static_cast<size_t>(item.begin),
                                               static_cast<size_t>(item.end - item.begin)),
                        .kernel_class = item.kernel_class,
                        .n_logits = item.n_logits});
    }
    deps_.model->forward(slices, logits, sender_.begin_pass(items) ? &sender_ : nullptr);
    return true;
  } catch (const std::exception& e) {
    last_error_ = fmt::format("forward pass of {} sequences: {}", items.size(), e.what());
  } catch (...) {
    last_error_ = fmt::format("forward pass of {} sequences: unknown exception", items.size());
  }
  spdlog::error("{}", last_error_);
  return false;
}

// Finds whose fault it was: a pass may be repeated (it writes the same KV again), so the others go
// on.
void EngineCore::forward_one_by_one() {
  auto* logits = reinterpret_cast<float*>(logits_.data());
  std::vector<BatchItem> good;
  for (const BatchItem& item : batch_.items) {
    if (forward(std::span(&item, 1), logits)) {
      if (sender_.gave_up_pass()) continue;
      good.push_back(item);
      logits += static_cast<size_t>(item.n_logits) * static_cast<size_t>(limits_.n_vocab);
      continue;
    }
    fail_item(item);
  }
  batch_.items = std::move(good);
}

void EngineCore::fail_item(const BatchItem& item) {
  const char* message = "internal error while computing this request";
  Request& request = *item.sequence->request;
  if (request.send) return end_send(request, fail(ErrorCode::kInternal, "{}", message));
  for (const auto& sequence : request.choices) {
    const bool hangs_on_it = sequence->state == SequenceState::kFollowing;
    if (hangs_on_it) post_.fail_choice(*sequence, message);
  }
  post_.fail_choice(*item.sequence, message);
}

void EngineCore::note_admissions() {
  for (const BatchItem& item : batch_.items) note_admission(*item.sequence->request);
  for (const Sequence* sequence : batch_.cached_sends) note_admission(*sequence->request);
}

void EngineCore::note_admission(Request& request) {
  if (request.admitted_ns) return;
  const int64_t now_ns = step_begin_ns_;
  request.admitted_ns = now_ns;
  metrics_.queued(now_ns - request.submitted_ns);
  if (deps_.trace == nullptr) return;
  const std::string label = request.label();
  deps_.trace->add({.name = "queue",
                    .begin_ns = std::min(request.submitted_ns, now_ns),
                    .end_ns = now_ns,
                    .requests = std::span(&label, 1),
                    .n_tokens = request.n_prompt()});
}

void EngineCore::trace_step(int64_t end_ns) {
  if (deps_.trace == nullptr) return;
  for (const bool decodes : {false, true}) {
    std::vector<std::string> labels;
    int64_t n_tokens = 0;
    for (const BatchItem& item : batch_.items) {
      if (item.decodes != decodes) continue;
      labels.push_back(item.sequence->request->label());
      n_tokens += item.end - item.begin;
    }
    if (labels.empty()) continue;
    deps_.trace->add({.name = decodes ? "decode" : "prefill",
                      .begin_ns = step_begin_ns_,
                      .end_ns = end_ns,
                      .requests = labels,
                      .n_tokens = n_tokens});
  }
}

void EngineCore::emit() {
  for (const RequestId id : post_.take_dirty()) {
    // Cancelled since: gone, or without events.
    if (Request* request = scheduler_.find(id)) send(*request);
  }
}

void EngineCore::send(Request& request) {
  const RequestId id = request.spec.id;
  request.dirty = false;
  RequestUpdate update = std::exchange(request.update, {});
  request.update.id = id;
  UpdateSink sink = request.sink;
  if (request.finished()) {
    scheduler_.erase(id);
    ++n_ended_;
  }
  if (update.events.empty() && !update.prompt) return;
  try {
    sink(std::move(update));
  } catch (const std::exception& e) {
    last_error_ = fmt::format("request {:016x}: its sink failed: {}", id.value, e.what());
    spdlog::error("{}", last_error_);
    cancel(id, std::nullopt);
  }
}

void EngineCore::end_all(FinishReason reason, const std::string& message) {
  receive_.close_all();
  (void)scheduler_.take_lost();  // they end with the others
  for (const RequestId id : scheduler_.ids()) {
    Request& request = *scheduler_.find(id);
    if (request.send) {
      end_send(request, fail(ErrorCode::kUnavailable, "{}", message));
      continue;
    }
    for (const auto& sequence : request.choices) {
      if (sequence->state != SequenceState::kFinished)
        post_.fail_choice(*sequence, message, reason);
    }
  }
}

EngineStats EngineCore::stats() const {
  EngineStats stats;
  const Request* last = nullptr;
  for (const Sequence* sequence : scheduler_.running()) {
    if (sequence->request != last) ++stats.n_running;
    last = sequence->request;
  }
  stats.n_waiting = static_cast<int>(scheduler_.n_requests()) - stats.n_running;
  stats.blocks = cache_.counts();
  stats.n_leases = receive_.n_open();
  stats.n_quarantined = receive_.n_quarantined();
  stats.n_steps = n_steps_;
  stats.n_preemptions = scheduler_.counters().n_preemptions;
  stats.last_error = last_error_;
  return stats;
}

}  // namespace baton::engine
