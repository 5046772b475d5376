#include "frontend/choice_stream.h"

#include <fmt/format.h>

#include <utility>

#include "api/json_writer.h"

namespace baton::frontend {
namespace {

api::NamedLogprob named(const TextCodec& codec, const TokenLogprob& token, bool as_id) {
  api::NamedLogprob out;
  out.bytes = codec.piece(token.id);
  out.name = as_id ? fmt::format("token_id:{}", token.id) : api::to_valid_utf8(out.bytes);
  out.logprob = token.logprob;
  return out;
}

}  // namespace

api::TokenReport report_token(const TextCodec& codec, TokenId id, const LogprobEntry& logprob,
                              bool tokens_as_ids) {
  api::TokenReport out;
  out.chosen = named(codec, {.id = id, .logprob = logprob.logprob}, tokens_as_ids);
  out.top.reserve(logprob.top.size());
  for (const TokenLogprob& top : logprob.top) out.top.push_back(named(codec, top, tokens_as_ids));
  return out;
}

ChoiceStream::ChoiceStream(const TextCodec& codec, const ChoiceOptions& options, int index)
    : codec_(codec),
      options_(options),
      index_(index),
      decoder_(codec.decoder({.skip_special = options.skip_special_tokens})),
      matcher_(options.stops) {
  pending_.first = true;
}

void ChoiceStream::echo(std::string text, std::vector<api::TokenReport> reports) {
  n_code_points_ += api::count_code_points(text);
  pending_.text += text;
  pending_.logprobs = std::move(reports);
}

int ChoiceStream::add(const TokenEvent& event) {
  const int n_before = n_tokens_;
  const bool stopped = event.finish == FinishReason::kStop;
  for (size_t i = 0; i < event.tokens.size() && !finish_; ++i) {
    const TokenId id = event.tokens[i];
    ++n_tokens_;
    if (options_.want_token_ids) pending_.token_ids.push_back(id);
    if (options_.want_logprobs && i < event.logprobs.size()) {
      pending_.logprobs.push_back(
          report_token(codec_, id, event.logprobs[i], options_.tokens_as_ids));
      pending_.logprobs.back().text_offset = n_code_points_;
    }
    // The token that ended the choice is no part of its text, as in vLLM.
    const bool is_terminator = stopped && i + 1 == event.tokens.size();
    if (!is_terminator) add_text(decoder_->push(id));
  }
  if (event.finish && !finish_) finish(event);
  return n_tokens_ - n_before;
}

void ChoiceStream::add_text(const std::string& text) {
  n_code_points_ += api::count_code_points(text);
  if (n_tokens_ <= options_.min_tokens) {
    pending_.text += text;
    return;
  }
  match(text);
}

void ChoiceStream::match(const std::string& text) {
  text::StopMatcher::Output out = matcher_.push(text);
  pending_.text += out.text;
  if (!out.stop) return;
  finish_ = FinishReason::kStop;
  pending_.finish = finish_;
  pending_.stop_reason = options_.stops->strings()[static_cast<size_t>(*out.stop)];
}

void ChoiceStream::finish(const TokenEvent& event) {
  match(decoder_->finish());
  if (finish_) return;
  pending_.text += matcher_.flush();
  finish_ = event.finish;
  pending_.finish = finish_;
  if (event.stop_id) pending_.stop_reason = *event.stop_id;
}

bool ChoiceStream::has_news() const {
  return !pending_.text.empty() || !pending_.logprobs.empty() || !pending_.token_ids.empty() ||
         pending_.finish.has_value();
}

api::ChoiceOutput ChoiceStream::take() {
  api::ChoiceOutput out = std::exchange(pending_, {});
  out.index = index_;
  out.has_logprobs = options_.want_logprobs;
  out.has_token_ids = options_.want_token_ids;
  return out;
}

}  // namespace baton::frontend
