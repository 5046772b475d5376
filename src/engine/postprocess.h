// What follows a forward pass: prompt logprobs, sampling, stop rules, events, commits.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/batch.h"
#include "engine/metrics.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

namespace baton::engine {

/// Three passes over a batch: advance the sequences and collect what is to be sampled, sample it
/// (in parallel), let the sequences take their tokens. Owner: EngineCore; used by the engine thread
/// only.
class PostProcessor {
 public:
  struct Options {
    int context_tokens = 0;
    int n_vocab = 0;
    ThreadPool* pool = nullptr;  ///< may be null
  };
  PostProcessor(const Options& options, Scheduler& scheduler, EngineMetrics& metrics);

  /// `logits` [sum of n_logits, n_vocab] as the model wrote them for `batch`; `now_ns`: end of
  /// pass.
  void apply(const Batch& batch, const float* logits, int64_t now_ns);
  /// Ends a choice with an error that its client is told.
  void fail_choice(Sequence& sequence, const std::string& message,
                   FinishReason reason = FinishReason::kError,
                   ErrorCode code = ErrorCode::kInternal);
  [[nodiscard]] bool has_dirty() const { return !dirty_.empty(); }
  /// Ids of requests whose `update` waits to be sent, in the order of their first event.
  [[nodiscard]] std::vector<RequestId> take_dirty();

 private:
  /// One token to sample.
  struct Job {
    Sequence* sequence = nullptr;
    const float* row = nullptr;
    Result<SampledToken> result;
  };
  /// One prompt token whose log probability is asked for.
  struct PromptJob {
    Request* request = nullptr;
    size_t position = 0;         ///< of the token
    const float* row = nullptr;  ///< logits of the position before
  };

  void advance(const Batch& batch, const float* logits);
  void add_prompt_jobs(const BatchItem& item, const float* rows);
  void finish_prompt(Sequence& leader, const float* row);
  void sample_all();
  void sample(Sampler& sampler, Job& job) const;
  void score(Sampler& sampler, const PromptJob& job) const;
  void take(Job& job, int64_t now_ns);
  void accept(Sequence& sequence, SampledToken sampled, int64_t now_ns);
  /// The reason why a choice ends with its newest token, if it does; fills event.stop_id.
  [[nodiscard]] std::optional<FinishReason> stop_reason(const Sequence& sequence,
                                                        TokenEvent& event) const;
  void end_choice(Sequence& sequence, TokenEvent event, int64_t now_ns);
  Request& touch(Sequence& sequence);

  Options options_;
  Scheduler& scheduler_;
  EngineMetrics& metrics_;
  std::vector<Sampler> samplers_;  ///< one for each thread of the pool
  std::vector<Job> jobs_;
  std::vector<PromptJob> prompt_jobs_;
  std::vector<RequestId> dirty_;
  bool damaged_ = false;  ///< this step computed something that is not a number
};

}  // namespace baton::engine
