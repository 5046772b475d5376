#include "frontend/generation.h"

#include <algorithm>

#include "api/json_writer.h"
#include "base/log.h"
#include "frontend/mix.h"

namespace baton::frontend {
namespace {

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// Appends what a choice gained to what it had.
void append(api::ChoiceOutput& to, api::ChoiceOutput&& from) {
  to.index = from.index;
  to.text += from.text;
  to.has_logprobs = from.has_logprobs;
  to.has_token_ids = from.has_token_ids;
  std::move(from.logprobs.begin(), from.logprobs.end(), std::back_inserter(to.logprobs));
  to.token_ids.insert(to.token_ids.end(), from.token_ids.begin(), from.token_ids.end());
  if (from.finish) to.finish = from.finish;
  if (from.stop_reason.index() != 0) to.stop_reason = std::move(from.stop_reason);
}

}  // namespace

void Generation::start(const Services& services, std::shared_ptr<net::HttpExchange> exchange,
                       GenerationPlan plan, Arrival arrival) {
  const std::shared_ptr<Generation> self(
      new Generation(services, std::move(exchange), std::move(plan), std::move(arrival)));
  self->begin();
}

Generation::Generation(const Services& services, std::shared_ptr<net::HttpExchange> exchange,
                       GenerationPlan plan, Arrival arrival)
    : services_(services),
      exchange_(std::move(exchange)),
      plan_(std::move(plan)),
      arrival_(std::move(arrival)) {
  const api::GenerationParams& params = plan_.params;
  head_ = {.chat = plan_.chat,
           .id = arrival_.id,
           .created_s = arrival_.created_s,
           .model = params.model.value_or(services_.card.names.front()),
           .fingerprint = services_.card.fingerprint,
           .include_usage = params.include_usage};
  choice_options_ = {.skip_special_tokens = params.skip_special_tokens,
                     .want_logprobs = params.n_logprobs.has_value(),
                     .want_token_ids = params.return_token_ids,
                     .tokens_as_ids = params.return_tokens_as_token_ids,
                     .min_tokens = params.min_tokens,
                     .stops = std::make_shared<text::StopStrings>(params.stop)};
  for (size_t prompt = 0; prompt < plan_.prompts.size(); ++prompt) {
    subs_.push_back({.id = RequestId{arrival_.first_id + prompt}, .info = {}, .n_open = params.n});
    for (int i = 0; i < params.n; ++i) {
      const int index = static_cast<int>(choices_.size());
      choices_.push_back(
          {.stream = ChoiceStream(services_.codec, choice_options_, index), .result = {}});
    }
  }
  n_open_ = choices_.size();
}

void Generation::begin() {
  exchange_->on_close([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->client_gone();
  });
  if (Status ok = submit_all(); !ok) return fail(api::from_error(ok.error()));
  if (plan_.params.stream) {
    stream_started_ = true;
    exchange_->start_stream(
        {.content_type = "text/event-stream; charset=utf-8",
         .headers = {{"X-Request-Id", arrival_.id}, {"Cache-Control", "no-cache"}},
         .body = {}});
  }
}

Status Generation::submit_all() {
  for (size_t i = 0; i < subs_.size(); ++i) {
    TokenRequest request = token_request(i);
    if (request.max_tokens == 0 && !request.n_prompt_logprobs) {
      // The prompt alone, without log probabilities: there is nothing to compute.
      RequestUpdate update{.id = request.id, .prompt = PromptInfo{}, .events = {}};
      update.prompt->n_prompt_tokens = static_cast<int>(request.prompt.size());
      for (int choice = 0; choice < plan_.params.n; ++choice) {
        TokenEvent& event = update.events.emplace_back();
        event.choice = choice;
        event.finish = FinishReason::kLength;
      }
      enqueue(i, std::move(update));
      continue;
    }
    Status ok = services_.backend.submit(std::move(request),
                                         [self = shared_from_this(), i](RequestUpdate update) {
                                           self->enqueue(i, std::move(update));
                                         });
    if (!ok) return ok;
    subs_[i].submitted = true;
  }
  return {};
}

TokenRequest Generation::token_request(size_t prompt) const {
  const api::GenerationParams& params = plan_.params;
  TokenRequest out;
  out.id = subs_[prompt].id;
  out.prompt = plan_.prompts[prompt].tokens;
  out.sampling = params.sampling;
  // Prompts of a list that are equal get answers of their own, unless the client fixed the seed.
  if (!params.has_seed) out.sampling.seed = mix(arrival_.seed + prompt);
  out.n_choices = params.n;
  out.max_tokens = plan_.prompts[prompt].max_tokens;
  out.min_tokens = params.min_tokens;
  out.eos_ids = services_.card.eos_ids;
  out.stop_ids = params.stop_token_ids;
  out.ignore_eos = params.ignore_eos;
  out.n_logprobs = params.n_logprobs;
  if (plan_.echo) out.n_prompt_logprobs = params.n_logprobs;
  out.priority = params.priority;
  out.arrival_ns = arrival_.arrival_ns;
  out.label = prompt == 0 ? arrival_.id : fmt::format("{}-{}", arrival_.id, prompt);
  return out;
}

void Generation::enqueue(size_t sub, RequestUpdate update) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.emplace_back(sub, std::move(update));
    if (std::exchange(drain_posted_, true)) return;
  }
  exchange_->post([self = shared_from_this()] { self->drain(); });
}

void Generation::drain() {
  std::vector<std::pair<size_t, RequestUpdate>> updates;
  {
    const std::lock_guard lock(mutex_);
    updates.swap(inbox_);
    drain_posted_ = false;
  }
  now_ns_ = services_.clock.now_ns();
  for (auto& [sub, update] : updates) {
    if (done_) return;
    apply(sub, update);
  }
  if (done_) return;
  send_news();
  if (n_open_ == 0) complete();
}

void Generation::apply(size_t sub, RequestUpdate& update) {
  if (update.prompt) apply_prompt(sub, *update.prompt);
  for (const TokenEvent& event : update.events) {
    if (done_) return;
    apply_event(sub, event);
  }
}

void Generation::apply_prompt(size_t sub, const PromptInfo& info) {
  subs_[sub].info = info;
  services_.metrics.add_prompt_tokens(info.n_prompt_tokens);
  if (!plan_.echo) return;
  const PlannedPrompt& prompt = plan_.prompts[sub];
  std::vector<api::TokenReport> reports;
  if (choice_options_.want_logprobs) {
    reports = report_prompt(services_.codec, prompt, info, choice_options_.tokens_as_ids);
  }
  for (int i = 0; i < plan_.params.n; ++i) {
    Choice& choice = choices_[sub * static_cast<size_t>(plan_.params.n) + static_cast<size_t>(i)];
    choice.stream.echo(prompt.text, reports);
    choice.touched = true;
  }
}

void Generation::apply_event(size_t sub, const TokenEvent& event) {
  if (event.finish == FinishReason::kError) {
    return fail(api::from_error(
        {.code = event.code, .message = event.error.empty() ? "generation failed" : event.error}));
  }
  if (event.finish == FinishReason::kCancelled) {
    return fail(api::from_error(
        {.code = ErrorCode::kCancelled,
         .message = event.error.empty() ? "the server ended this request before it was complete"
                                        : event.error}));
  }
  if (event.finish == FinishReason::kGivenUp) {  // and there is nobody to take it elsewhere
    return fail(api::from_error({.code = ErrorCode::kUnavailable,
                                 .message = "the engine gave this request up: " + event.error}));
  }
  if (event.choice < 0 || event.choice >= plan_.params.n) return;
  Choice& choice =
      choices_[sub * static_cast<size_t>(plan_.params.n) + static_cast<size_t>(event.choice)];
  if (choice.stream.finished())
    return;  // it was cancelled at a stop string while this was under way
  const int n_tokens = choice.stream.add(event);
  choice.touched = true;
  if (n_tokens > 0) count_tokens(choice, n_tokens);
  if (!choice.stream.finished()) return;
  --n_open_;
  --subs_[sub].n_open;
  choice.length = choice.stream.finish_reason() == FinishReason::kLength;
  if (!event.finish) services_.backend.cancel(subs_[sub].id, event.choice);
}

void Generation::count_tokens(Choice& choice, int n_tokens) {
  services_.metrics.add_generation_tokens(n_tokens);
  if (!std::exchange(first_token_seen_, true)) {
    services_.metrics.first_token(seconds(now_ns_ - arrival_.arrival_ns));
  }
  // Of tokens that are sent together, only the first one waited.
  int n_gaps = n_tokens;
  if (!choice.has_tokens) {
    choice.has_tokens = true;
    choice.first_token_ns = now_ns_;
    --n_gaps;
  } else {
    services_.metrics.inter_token(seconds(now_ns_ - choice.last_token_ns));
    --n_gaps;
  }
  for (int i = 0; i < n_gaps; ++i) services_.metrics.inter_token(0);
  choice.last_token_ns = now_ns_;
}

void Generation::send_news() {
  std::string chunks;
  for (Choice& choice : choices_) {
    if (!std::exchange(choice.touched, false) || !choice.stream.has_news()) continue;
    api::ChoiceOutput news = choice.stream.take();
    const size_t prompt = static_cast<size_t>(news.index) / static_cast<size_t>(plan_.params.n);
    const bool show_prompt = plan_.params.return_token_ids && news.first;
    if (show_prompt) news.prompt_token_ids = &plan_.prompts[prompt].tokens;
    if (plan_.params.stream) {
      chunks += api::stream_chunk(head_, news);
    } else {
      if (show_prompt) choice.result.prompt_token_ids = news.prompt_token_ids;
      append(choice.result, std::move(news));
    }
  }
  if (!chunks.empty()) exchange_->write(std::move(chunks));
}

void Generation::complete() {
  done_ = true;
  if (plan_.params.stream) {
    std::string last;
    if (plan_.params.include_usage) last = api::usage_chunk(head_, usage());
    exchange_->write(last.append(api::kStreamEnd));
    exchange_->end();
  } else {
    std::vector<api::ChoiceOutput> results;
    results.reserve(choices_.size());
    for (Choice& choice : choices_) results.push_back(std::move(choice.result));
    exchange_->respond({.status = 200,
                        .headers = {{"X-Request-Id", arrival_.id}},
                        .body = api::response_body(head_, results, usage())});
  }
  const int64_t end_ns = services_.clock.now_ns();
  services_.metrics.end_to_end(seconds(end_ns - arrival_.arrival_ns));
  bool any_length = false;
  for (const Choice& choice : choices_) {
    any_length = any_length || choice.length;
    const int n = choice.stream.n_tokens();
    if (n < 2) continue;
    services_.metrics.per_output_token(seconds(choice.last_token_ns - choice.first_token_ns) /
                                       (n - 1));
  }
  services_.metrics.finished(any_length ? Outcome::kLength : Outcome::kStop);
  log_end("completed");
}

void Generation::fail(const api::ApiError& error) {
  if (stream_started_) send_news();  // what came before the error is still true
  done_ = true;
  cancel_open();
  services_.metrics.finished(Outcome::kError);
  if (stream_started_) {
    exchange_->write(api::error_chunk(error).append(api::kStreamEnd));
    exchange_->end();
  } else {
    net::HttpResponse response{.status = error.status,
                               .headers = {{"X-Request-Id", arrival_.id}},
                               .body = api::error_body(error)};
    if (error.retry_after_s > 0) {
      response.headers["Retry-After"] = std::to_string(error.retry_after_s);
    }
    exchange_->respond(std::move(response));
  }
  log_end(error.message.c_str());
}

void Generation::client_gone() {
  if (std::exchange(done_, true)) return;
  cancel_open();
  services_.metrics.finished(Outcome::kAbort);
  log_end("client gone");
}

void Generation::cancel_open() {
  for (const SubRequest& sub : subs_) {
    if (sub.submitted && sub.n_open > 0) services_.backend.cancel(sub.id);
  }
}

api::Usage Generation::usage() const {
  api::Usage out;
  for (const SubRequest& sub : subs_) {
    out.n_prompt += sub.info.n_prompt_tokens;
    out.n_cached += sub.info.n_cached_tokens;
  }
  for (const Choice& choice : choices_) out.n_completion += choice.stream.n_tokens();
  return out;
}

void Generation::log_end(const char* how) const {
  const api::Usage used = usage();
  spdlog::debug("request {}{}{}: {}; {} prompt tokens ({} cached), {} generated", arrival_.id,
                arrival_.label.empty() ? "" : " label ", arrival_.label, how, used.n_prompt,
                used.n_cached, used.n_completion);
}

std::vector<api::TokenReport> report_prompt(const TextCodec& codec, const PlannedPrompt& prompt,
                                            const PromptInfo& info, bool tokens_as_ids) {
  std::vector<api::TokenReport> reports;
  reports.reserve(prompt.tokens.size());
  const auto decoder = codec.decoder({.skip_special = true, .at_start = true});
  size_t offset = 0;  // bytes of the prompt's text
  int64_t n_code_points = 0;
  for (size_t i = 0; i < prompt.tokens.size(); ++i) {
    const TokenId id = prompt.tokens[i];
    static const LogprobEntry kNone;
    const LogprobEntry& entry = i < info.prompt_logprobs.size() ? info.prompt_logprobs[i] : kNone;
    reports.push_back(report_token(codec, id, entry, tokens_as_ids));
    reports.back().has_logprob = i > 0 && i < info.prompt_logprobs.size();
    reports.back().text_offset = n_code_points;
    std::string text = decoder->push(id);
    if (codec.is_special(id)) {
      // A special token stands in the text by its name if the client wrote it there, else (BOS) not
      // at all.
      const std::string name = codec.piece(id);
      text = prompt.text.compare(offset, name.size(), name) == 0 ? name : "";
    }
    offset = std::min(offset + text.size(), prompt.text.size());
    n_code_points += api::count_code_points(text);
  }
  return reports;
}

}  // namespace baton::frontend
