// Load on a server: sends planned requests when they are due, and keeps the moment at which each
// chunk of each answer arrived.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/workload.h"
#include "net/http_client.h"

namespace baton::bench {

/// One request and what became of it. Times are the clock's.
struct RequestRecord {
  int64_t start_ns = 0;           ///< when it was handed to the connection; 0 = never
  int64_t late_ns = 0;            ///< how long after it was due (and a place was free)
  int64_t end_ns = 0;             ///< when the answer was over
  std::vector<int64_t> chunk_ns;  ///< when each chunk with a choice arrived
  int n_text_chunks = 0;          ///< of them, with text
  int64_t prompt_tokens = 0;      ///< as the server says, else as planned
  int64_t output_tokens = 0;      ///< as the server says, else chunks with text
  bool has_usage = false;
  /// Empty = complete. Else "no_answer" (no connection, or it ended first), "http_STATUS",
  /// "error_event" (the stream says that it failed), "broken_stream" (bad JSON, or an end without
  /// [DONE]), "empty_stream", "timeout" or "cancelled" (stop()).
  std::string error_kind;
  std::string error;  ///< in words

  [[nodiscard]] bool ok() const { return error_kind.empty(); }
  /// Of the first and of the last chunk, since start_ns.
  [[nodiscard]] double ttft_s() const;
  [[nodiscard]] double e2e_s() const;
  /// (E2E - TTFT) / (output tokens - 1); 0 for a single token.
  [[nodiscard]] double tpot_s() const;
};

struct LoadOptions {
  std::string path = "/v1/completions";
  int max_running = 0;                         ///< 0 = no limit
  std::chrono::milliseconds timeout{600'000};  ///< of one request; 0 = none
};

struct LoadProgress {
  size_t n_done = 0;
  size_t n_total = 0;
  size_t n_running = 0;
  size_t n_failed = 0;
  double seconds = 0;
};

struct LoadHooks {
  std::function<std::string(size_t index)> body;  ///< of a request; called in order, just before
  std::function<void(const LoadProgress&)> on_progress;  ///< about ten times a second; may be empty
};

struct LoadResult {
  std::vector<RequestRecord> records;  ///< of what was sent, in order
  int64_t start_ns = 0;
  int64_t end_ns = 0;  ///< of the last answer
};

/// One run of load. run() is called once and blocks its thread; stop() may be called on any, at any
/// time, also before.
class LoadRun {
 public:
  LoadRun(net::HttpClient& client, LoadOptions options, const Clock& clock);
  ~LoadRun();

  [[nodiscard]] LoadResult run(std::span<const PlannedRequest> requests, const LoadHooks& hooks);
  /// Nothing more is sent, and what is under way is cancelled.
  void stop();

 private:
  struct InFlight;
  using Steady = std::chrono::steady_clock;

  /// Waits until `due` and a free place; false: stopped. Reports and times out meanwhile.
  bool wait_to_send(Steady::time_point due, const LoadHooks& hooks);
  void wait_for_rest(const LoadHooks& hooks);
  void send(size_t index, const PlannedRequest& planned, std::string body, Steady::time_point due);
  void finished(size_t index, RequestRecord record);
  void look_around(const LoadHooks& hooks);
  [[nodiscard]] LoadProgress progress_locked() const;

  net::HttpClient& client_;
  const LoadOptions options_;
  const Clock& clock_;

  std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  bool stopped_ = false;
  size_t n_total_ = 0;
  size_t n_done_ = 0;
  size_t n_failed_ = 0;
  size_t n_running_ = 0;
  std::vector<RequestRecord> records_;
  std::vector<std::shared_ptr<InFlight>> running_;  ///< by index; null once it is over
  size_t first_running_ = 0;                        ///< all before it are over
  int64_t start_ns_ = 0;
  int64_t end_ns_ = 0;
  Steady::time_point free_since_{};  ///< when a place became free last
  Steady::time_point next_report_{};
};

}  // namespace baton::bench
