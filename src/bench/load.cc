#include "bench/load.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "bench/stream_reader.h"

namespace baton::bench {
namespace {

constexpr auto kReportEvery = std::chrono::milliseconds(100);
constexpr size_t kMaxErrorBytes = 2048;

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// Text of a server on one line, for messages.
std::string one_line(std::string_view text) {
  std::string out(text.substr(0, 300));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return out;
}

}  // namespace

double RequestRecord::ttft_s() const {
  return chunk_ns.empty() ? 0 : seconds(chunk_ns.front() - start_ns);
}

double RequestRecord::e2e_s() const {
  return chunk_ns.empty() ? 0 : seconds(chunk_ns.back() - start_ns);
}

double RequestRecord::tpot_s() const {
  return output_tokens > 1 ? (e2e_s() - ttft_s()) / static_cast<double>(output_tokens - 1) : 0;
}

/// A request under way. `call` and `timed_out` apart, of the I/O thread once it has been sent.
struct LoadRun::InFlight {
  RequestRecord record;
  SseReader sse;
  int status = 0;
  bool done = false;       ///< [DONE] has come
  std::string error_body;  ///< of an answer that isn't 200
  net::HttpCall call;      ///< guarded by the run's mutex
  int64_t start_ns = 0;    ///< as in the record
  std::atomic<bool> timed_out{false};

  void fault(const char* kind, std::string text) {
    if (!record.ok()) return;
    record.error_kind = kind;
    record.error = std::move(text);
  }

  void read(std::string_view bytes, int64_t now_ns) {
    if (status != 200) {
      error_body += bytes.substr(0, kMaxErrorBytes - std::min(kMaxErrorBytes, error_body.size()));
      return;
    }
    const bool readable = sse.read(bytes, [&](std::string_view data) { read_event(data, now_ns); });
    if (!readable) fault("broken_stream", "an event without end");
  }

  void read_event(std::string_view data, int64_t now_ns) {
    if (done || !record.ok()) return;
    if (data == "[DONE]") {
      done = true;
      return;
    }
    StreamChunk chunk = read_stream_chunk(data);
    if (!chunk.is_json) return fault("broken_stream", "not JSON: " + one_line(data));
    if (chunk.error) return fault("error_event", one_line(*chunk.error));
    if (chunk.has_choice) record.chunk_ns.push_back(now_ns);
    record.n_text_chunks += chunk.has_text ? 1 : 0;
    if (chunk.prompt_tokens) record.prompt_tokens = *chunk.prompt_tokens;
    if (chunk.completion_tokens) {
      record.output_tokens = *chunk.completion_tokens;
      record.has_usage = true;
    }
  }

  void end(const Status& status_of_call, int64_t now_ns) {
    record.end_ns = now_ns;
    // An event behind which the empty line is missing.
    if (status == 200) read("\n\n", now_ns);
    if (!status_of_call && status_of_call.error().code == ErrorCode::kCancelled) {
      fault(timed_out ? "timeout" : "cancelled", status_of_call.error().message);
    } else if (status == 0) {
      fault("no_answer", status_of_call ? "no answer" : status_of_call.error().message);
    } else if (status != 200) {
      fault(fmt::format("http_{}", status).c_str(), one_line(error_body));
    } else if (!status_of_call) {
      fault("broken_stream", status_of_call.error().message);
    } else if (!done) {
      fault("broken_stream", "the stream ended without [DONE]");
    } else if (record.chunk_ns.empty()) {
      fault("empty_stream", "no chunk of the stream has a choice");
    }
    if (!record.has_usage) record.output_tokens = record.n_text_chunks;
  }
};

LoadRun::LoadRun(net::HttpClient& client, LoadOptions options, const Clock& clock)
    : client_(client), options_(std::move(options)), clock_(clock) {}

LoadRun::~LoadRun() = default;

LoadResult LoadRun::run(std::span<const PlannedRequest> requests, const LoadHooks& hooks) {
  {
    const std::lock_guard lock(mutex_);
    n_total_ = requests.size();
    records_.resize(requests.size());
    running_.resize(requests.size());
    start_ns_ = end_ns_ = clock_.now_ns();
  }
  const Steady::time_point start = Steady::now();
  size_t n_sent = 0;
  for (const PlannedRequest& planned : requests) {
    const auto due = start + std::chrono::duration_cast<Steady::duration>(
                                 std::chrono::duration<double>(planned.due_s));
    std::string body = hooks.body(n_sent);
    if (!wait_to_send(due, hooks)) break;
    send(n_sent++, planned, std::move(body), due);
  }
  wait_for_rest(hooks);
  const std::lock_guard lock(mutex_);
  records_.resize(n_sent);
  return {std::move(records_), start_ns_, end_ns_};
}

void LoadRun::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (size_t i = first_running_; i < n_done_ + n_running_; ++i) {
    if (running_[i]) running_[i]->call.cancel();
  }
  changed_.notify_all();
}

bool LoadRun::wait_to_send(Steady::time_point due, const LoadHooks& hooks) {
  while (true) {
    look_around(hooks);
    std::unique_lock lock(mutex_);
    const auto free = [&] {
      return options_.max_running <= 0 || n_running_ < static_cast<size_t>(options_.max_running);
    };
    if (stopped_) return false;
    const bool is_due = Steady::now() >= due;
    if (is_due && free()) return true;
    const auto until = is_due ? next_report_ : std::min(due, next_report_);
    changed_.wait_until(lock, until, [&] { return stopped_ || (is_due && free()); });
  }
}

void LoadRun::wait_for_rest(const LoadHooks& hooks) {
  while (true) {
    look_around(hooks);
    std::unique_lock lock(mutex_);
    if (changed_.wait_until(lock, next_report_, [&] { return n_running_ == 0; })) return;
  }
}

void LoadRun::send(size_t index, const PlannedRequest& planned, std::string body,
                   Steady::time_point due) {
  auto flight = std::make_shared<InFlight>();
  flight->record.prompt_tokens = planned.n_prompt();
  net::HttpRequest request;
  request.method = "POST";
  request.path = options_.path;
  request.headers = {{"content-type", "application/json"}, {"accept", "text/event-stream"}};
  request.body = std::move(body);
  net::StreamHandlers handlers;
  handlers.on_head = [flight](const net::HttpResponse& head) { flight->status = head.status; };
  handlers.on_chunk = [flight, this](std::string_view bytes) {
    flight->read(bytes, clock_.now_ns());
  };
  handlers.on_end = [flight, this, index](const Status& status) {
    flight->end(status, clock_.now_ns());
    finished(index, std::move(flight->record));
  };
  {
    const std::lock_guard lock(mutex_);
    running_[index] = flight;
    ++n_running_;
    const auto ready = options_.max_running > 0 ? std::max(due, free_since_) : due;
    const auto late = Steady::now() - ready;
    flight->record.late_ns = std::max(int64_t{0}, int64_t{std::chrono::nanoseconds(late).count()});
  }
  flight->start_ns = flight->record.start_ns = clock_.now_ns();
  net::HttpCall call = client_.stream(std::move(request), std::move(handlers));
  const std::lock_guard lock(mutex_);
  flight->call = call;
  if (stopped_) call.cancel();
}

void LoadRun::finished(size_t index, RequestRecord record) {
  const std::lock_guard lock(mutex_);
  end_ns_ = std::max(end_ns_, record.end_ns);
  ++n_done_;
  --n_running_;
  if (!record.ok()) ++n_failed_;
  records_[index] = std::move(record);
  running_[index] = nullptr;
  while (first_running_ < n_done_ + n_running_ && !running_[first_running_]) {
    ++first_running_;
  }
  free_since_ = Steady::now();
  changed_.notify_all();
}

LoadProgress LoadRun::progress_locked() const {
  return {n_done_, n_total_, n_running_, n_failed_, seconds(clock_.now_ns() - start_ns_)};
}

/// Reports, and ends what takes too long, if it is time to.
void LoadRun::look_around(const LoadHooks& hooks) {
  const auto now = Steady::now();
  if (now < next_report_) return;
  LoadProgress progress;
  {
    const std::lock_guard lock(mutex_);
    next_report_ = now + kReportEvery;
    progress = progress_locked();
    const int64_t timeout_ns = std::chrono::nanoseconds(options_.timeout).count();
    const int64_t now_ns = clock_.now_ns();
    for (size_t i = first_running_; timeout_ns > 0 && i < n_done_ + n_running_; ++i) {
      InFlight* flight = running_[i].get();
      if (flight == nullptr || now_ns - flight->start_ns < timeout_ns) continue;
      flight->timed_out = true;
      flight->call.cancel();
    }
  }
  if (hooks.on_progress) hooks.on_progress(progress);
}

}  // namespace baton::bench
