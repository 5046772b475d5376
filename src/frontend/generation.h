// One completion or chat request from submission to the last byte: sub-requests to the backend,
// their events to choices, choices to a response or a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api/responses.h"
#include "base/clock.h"
#include "frontend/backend.h"
#include "frontend/choice_stream.h"
#include "frontend/model_card.h"
#include "frontend/plan.h"
#include "frontend/request_metrics.h"
#include "frontend/text_codec.h"
#include "net/http.h"

namespace baton::frontend {

/// What every generation of a frontend uses; outlives them all.
struct Services {
  Backend& backend;
  const TextCodec& codec;
  const ModelCard& card;
  RequestMetrics& metrics;
  const Clock& clock;
};

/// Names and times that the frontend gives a request when it arrives.
struct Arrival {
  int64_t arrival_ns = 0;  ///< of Services::clock
  int64_t created_s = 0;   ///< Unix time
  std::string id;          ///< ours, shown to the client
  std::string label;       ///< the client's X-Request-Id, for the log only
  uint64_t seed = 0;       ///< prompts get seeds made from it if the request has none
  uint64_t first_id = 0;   ///< RequestIds [first_id, first_id + prompts) are this request's
};

/// Owned by the sinks it hands to the backend and by the tasks it posts; gone once all choices
/// ended. Everything but the sinks runs on the exchange's strand; the sinks only queue and post.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  /// Submits every prompt, or answers with the error. Call on the exchange's strand.
  static void start(const Services& services, std::shared_ptr<net::HttpExchange> exchange,
                    GenerationPlan plan, Arrival arrival);

 private:
  /// One prompt as the backend knows it.
  struct SubRequest {
    RequestId id;
    PromptInfo info;
    bool submitted = false;  ///< the backend still works for it
    int n_open = 0;          ///< choices not finished
  };
  struct Choice {
    ChoiceStream stream;
    api::ChoiceOutput result;  ///< unstreamed: everything so far
    int64_t first_token_ns = 0;
    int64_t last_token_ns = 0;
    bool has_tokens = false;
    bool length = false;   ///< ended by max_tokens
    bool touched = false;  ///< has something that was not sent
  };

  Generation(const Services& services, std::shared_ptr<net::HttpExchange> exchange,
             GenerationPlan plan, Arrival arrival);
  void begin();
  [[nodiscard]] Status submit_all();
  [[nodiscard]] TokenRequest token_request(size_t prompt) const;
  void enqueue(size_t sub, RequestUpdate update);
  void drain();
  void apply(size_t sub, RequestUpdate& update);
  void apply_prompt(size_t sub, const PromptInfo& info);
  void apply_event(size_t sub, const TokenEvent& event);
  void count_tokens(Choice& choice, int n_tokens);
  void count_end(const Choice& choice);
  void send_news();
  void complete();
  void fail(const api::ApiError& error);
  void client_gone();
  void cancel_open();
  [[nodiscard]] api::Usage usage() const;
  void log_end(const char* how) const;

  const Services services_;
  const std::shared_ptr<net::HttpExchange> exchange_;
  const GenerationPlan plan_;
  const Arrival arrival_;
  api::ResponseHead head_;
  ChoiceOptions choice_options_;
  std::vector<SubRequest> subs_;
  std::vector<Choice> choices_;  ///< [prompts * n], index = prompt * n + choice
  size_t n_open_ = 0;
  int64_t now_ns_ = 0;  ///< of the update being worked on
  bool first_token_seen_ = false;
  bool stream_started_ = false;
  bool done_ = false;  ///< answered, failed or abandoned

  std::mutex mutex_;  ///< guards what the backend's thread writes:
  std::vector<std::pair<size_t, RequestUpdate>> inbox_;
  bool drain_posted_ = false;
};

/// The prompt's tokens as log probability reports, text offsets counted from the prompt's
/// beginning.
[[nodiscard]] std::vector<api::TokenReport> report_prompt(const TextCodec& codec,
                                                          const PlannedPrompt& prompt,
                                                          const PromptInfo& info,
                                                          bool tokens_as_ids);

}  // namespace baton::frontend
