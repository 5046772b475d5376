#include "engine/postprocess.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"

namespace baton::engine {
namespace {

bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

PostProcessor::PostProcessor(const Options& options, Scheduler& scheduler, EngineMetrics& metrics)
    : options_(options),
      scheduler_(scheduler),
      metrics_(metrics),
      samplers_(options.pool == nullptr ? 1 : static_cast<size_t>(options.pool->n_threads())) {}

void PostProcessor::apply(const Batch& batch, const float* logits, int64_t now_ns) {
  jobs_.clear();
  prompt_jobs_.clear();
  advance(batch, logits);
  sample_all();
  for (Job& job : jobs_) take(job, now_ns);
  // Whatever computed NaN may lie in cached blocks as well.
  if (std::exchange(damaged_, false)) scheduler_.clear_cached();
}

void PostProcessor::advance(const Batch& batch, const float* logits) {
  const float* rows = logits;
  for (const BatchItem& item : batch.items) {
    Sequence& sequence = *item.sequence;
    sequence.n_computed = item.end;
    if (sequence.request->needs_prompt_logits()) add_prompt_jobs(item, rows);
    rows += static_cast<size_t>(item.n_logits) * static_cast<size_t>(options_.n_vocab);
    if (sequence.n_left() > 0 || sequence.request->send) {
      scheduler_.commit(sequence);
      continue;
    }
    const float* last_row = rows - options_.n_vocab;
    if (sequence.request->prompt_done) {
      jobs_.push_back({&sequence, last_row, {}});
    } else {
      finish_prompt(sequence, last_row);
    }
  }
}

void PostProcessor::add_prompt_jobs(const BatchItem& item, const float* rows) {
  Request& request = *item.sequence->request;
  request.prompt_logprobs.resize(request.spec.prompt.size());
  const auto last = std::min(static_cast<size_t>(item.end), request.spec.prompt.size() - 1);
  for (auto position = static_cast<size_t>(item.begin) + 1; position <= last; ++position) {
    prompt_jobs_.push_back({&request, position, rows});
    rows += options_.n_vocab;
  }
}

// Every choice begins with the same row of logits.
void PostProcessor::finish_prompt(Sequence& leader, const float* row) {
  Request& request = *leader.request;
  request.prompt_done = true;
  scheduler_.fork_followers(leader);
  for (const auto& sequence : request.choices) {
    if (sequence->state != SequenceState::kFinished) jobs_.push_back({sequence.get(), row, {}});
  }
}

void PostProcessor::sample_all() {
  const auto work = [&](int thread) {
    const auto step = samplers_.size();
    Sampler& sampler = samplers_[static_cast<size_t>(thread)];
    for (auto i = static_cast<size_t>(thread); i < jobs_.size(); i += step) {
      sample(sampler, jobs_[i]);
    }
    for (auto i = static_cast<size_t>(thread); i < prompt_jobs_.size(); i += step) {
      score(sampler, prompt_jobs_[i]);
    }
  };
  if (options_.pool != nullptr && jobs_.size() + prompt_jobs_.size() > 1) {
    options_.pool->run(work);
  } else {
    for (size_t thread = 0; thread < samplers_.size(); ++thread) work(static_cast<int>(thread));
  }
}

void PostProcessor::sample(Sampler& sampler, Job& job) const {
  const Sequence& sequence = *job.sequence;
  const TokenRequest& spec = sequence.request->spec;
  if (spec.max_tokens == 0) return;
  const auto n_prompt = spec.prompt.size();
  SampleRequest request{.logits = {job.row, static_cast<size_t>(options_.n_vocab)},
                        .params = spec.sampling,
                        .prompt = std::span(sequence.tokens).first(n_prompt),
                        .output = std::span(sequence.tokens).subspan(n_prompt),
                        .choice = sequence.choice,
                        .n_logprobs = spec.n_logprobs,
                        .banned = {}};
  if (sequence.n_output() < spec.min_tokens) {
    request.banned[0] = spec.stop_ids;
    if (!spec.ignore_eos) request.banned[1] = spec.eos_ids;
  }
  job.result = sampler.sample(request);
}

void PostProcessor::score(Sampler& sampler, const PromptJob& job) const {
  Request& request = *job.request;
  request.prompt_logprobs[job.position] =
      sampler.logprobs({job.row, static_cast<size_t>(options_.n_vocab)},
                       request.spec.prompt[job.position], *request.spec.n_prompt_logprobs);
}

void PostProcessor::take(Job& job, int64_t now_ns) {
  Sequence& sequence = *job.sequence;
  if (!job.result) {
    // A request can also leave itself nothing to choose from; that damages nothing.
    const auto row = std::span(job.row, static_cast<size_t>(options_.n_vocab));
    damaged_ |= std::any_of(row.begin(), row.end(), [](float x) { return std::isnan(x); });
    fail_choice(sequence, job.result.error().message);
    return;
  }
  scheduler_.commit(sequence);
  if (sequence.request->spec.max_tokens == 0) {
    TokenEvent event;
    event.choice = sequence.choice;
    event.finish = FinishReason::kLength;
    end_choice(sequence, std::move(event), now_ns);
  } else {
    accept(sequence, std::move(*job.result), now_ns);
  }
}

void PostProcessor::accept(Sequence& sequence, SampledToken sampled, int64_t now_ns) {
  Request& request = *sequence.request;
  if (!request.first_token_ns) {
    request.first_token_ns = now_ns;
    metrics_.prefilled(now_ns - request.admitted_ns.value_or(now_ns));
  }
  sequence.tokens.push_back(sampled.token);
  TokenEvent event;
  event.choice = sequence.choice;
  event.tokens = {sampled.token};
  if (sampled.logprobs) event.logprobs.push_back(std::move(*sampled.logprobs));
  event.finish = stop_reason(sequence, event);
  if (event.finish) {
    end_choice(sequence, std::move(event), now_ns);
  } else {
    touch(sequence).update.events.push_back(std::move(event));
  }
}

std::optional<FinishReason> PostProcessor::stop_reason(const Sequence& sequence,
                                                       TokenEvent& event) const {
  const TokenRequest& spec = sequence.request->spec;
  const TokenId token = sequence.tokens.back();
  if (!spec.ignore_eos && contains(spec.eos_ids, token)) return FinishReason::kStop;
  if (contains(spec.stop_ids, token)) {
    event.stop_id = token;
    return FinishReason::kStop;
  }
  if (sequence.n_output() >= spec.max_tokens) return FinishReason::kLength;
  if (sequence.n_tokens() >= options_.context_tokens) return FinishReason::kLength;
  return std::nullopt;
}

void PostProcessor::end_choice(Sequence& sequence, TokenEvent event, int64_t now_ns) {
  Request& request = touch(sequence);
  request.update.events.push_back(std::move(event));
  scheduler_.finish(sequence);
  if (request.finished() && request.first_token_ns) {
    metrics_.decoded(now_ns - *request.first_token_ns);
  }
}

void PostProcessor::fail_choice(Sequence& sequence, const std::string& message, FinishReason reason,
                                ErrorCode code) {
  const auto level = reason == FinishReason::kGivenUp ? spdlog::level::warn : spdlog::level::err;
  spdlog::log(level, "request {} choice {}: {}", sequence.request->label(), sequence.choice,
              message);
  TokenEvent event;
  event.choice = sequence.choice;
  event.finish = reason;
  event.error = message;
  event.code = code;
  touch(sequence).update.events.push_back(std::move(event));
  scheduler_.finish(sequence);
}

Request& PostProcessor::touch(Sequence& sequence) {
  Request& request = *sequence.request;
  if (!request.dirty) {
    request.dirty = true;
    dirty_.push_back(request.spec.id);
  }
  if (!request.prompt_reported) {
    request.prompt_reported = true;
    request.update.prompt = PromptInfo{.n_prompt_tokens = request.n_prompt(),
                                       .n_cached_tokens = request.n_cached_tokens,
                                       .prompt_logprobs = std::move(request.prompt_logprobs)};
  }
  return request;
}

std::vector<RequestId> PostProcessor::take_dirty() { return std::exchange(dirty_, {}); }

}  // namespace baton::engine
