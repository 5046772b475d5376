// Stand-ins for the tests of the frontend: an exchange that records, a backend that is driven by
// hand, a codec of bytes.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "frontend/frontend.h"

namespace baton::frontend {

/// Tasks run when the test says so, on the test's thread: that thread is the strand.
class FakeExchange : public net::HttpExchange {
 public:
  explicit FakeExchange(net::HttpRequest request) : request_(std::move(request)) {}
  const net::HttpRequest& request() const override { return request_; }
  void respond(net::HttpResponse response) override;
  void start_stream(net::HttpResponse head) override;
  void write(std::string chunk) override {
    written += chunk;
    ++n_writes;
  }
  void end() override { ended = true; }
  void post(std::function<void()> task) override;
  void on_close(std::function<void()> callback) override { close_callback_ = std::move(callback); }

  /// Runs what was posted, and what that posts.
  void run_posted();
  bool has_posted();
  /// Waits until something is posted, then runs it (for what works on other threads).
  void wait_and_run_posted();
  /// Forgets what was posted, as a server that stops does.
  void drop_posted();
  /// The client goes away.
  void close();

  /// The JSON bodies of the stream's events, [DONE] left out; checks the framing.
  [[nodiscard]] std::vector<nlohmann::json> events() const;
  [[nodiscard]] bool done_sent() const;
  [[nodiscard]] nlohmann::json json() const;

  std::optional<net::HttpResponse> response;  ///< or the head of a stream
  bool streaming = false;
  bool ended = false;
  int n_writes = 0;
  std::string written;

 private:
  net::HttpRequest request_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> tasks_;
  std::function<void()> close_callback_;
};

class FakeBackend final : public Backend {
 public:
  struct Submitted {
    TokenRequest request;
    UpdateSink sink;  ///< dropped by cancel, as a real backend does
    std::set<int> cancelled_choices;
    bool cancelled = false;
  };
  Status submit(TokenRequest request, UpdateSink sink) override;
  void cancel(RequestId id, std::optional<int> choice) override;
  BackendHealth health() const override { return state; }

  /// Prompt info of request `i`.
  void prompt(size_t i, int n_cached = 0);
  /// Events of request `i`: `text`'s bytes as tokens of `choice`.
  void text(size_t i, int choice, const std::string& text,
            std::optional<FinishReason> finish = std::nullopt);
  void event(size_t i, TokenEvent event);

  std::vector<Submitted> requests;
  BackendHealth state;
  /// What the next submits answer; empty = accept.
  std::deque<Status> answers;
};

/// Token ids 0…255 are bytes, then <s> (BOS), </s> (EOS), <x> (special), and "ab" as one token.
class ByteCodec : public TextCodec {
 public:
  static constexpr TokenId kBos = 256;
  static constexpr TokenId kEos = 257;
  static constexpr TokenId kSpecial = 258;
  static constexpr TokenId kPair = 259;
  static constexpr int kVocab = 260;
  Result<std::vector<TokenId>> encode(std::string_view text, bool add_special) const override;
  std::unique_ptr<TextDecoder> decoder(const DecodeMode& mode) const override;
  std::string piece(TokenId id) const override;
  std::string spelling(TokenId id) const override { return "_" + piece(id); }
  bool is_special(TokenId id) const override { return id >= kBos && id <= kSpecial; }
  size_t max_piece_bytes() const override { return 4; }
  /// "role:content\n" for each message, then "assistant:". "refuse" as content is an error.
  Result<std::string> render(const api::ChatPrompt& prompt) const override;

  std::function<void(std::string_view)> before_encode;  ///< called by encode; may block or throw
};

class TestClock final : public Clock {
 public:
  int64_t now_ns() const override { return ns; }
  int64_t ns = 1'000'000'000;
};

/// A frontend over the stand-ins. Model "tiny" with alias "alias", context of 100 tokens.
struct Fixture {
  explicit Fixture(const std::string& api_key = {}, int max_model_len = 100,
                   std::vector<ExtraRoute> extra_routes = {});
  std::shared_ptr<FakeExchange> send(net::HttpRequest request);
  std::shared_ptr<FakeExchange> post(const std::string& path, const std::string& body);
  std::shared_ptr<FakeExchange> get(const std::string& path);
  /// The value of a series in /metrics, by its line's beginning.
  [[nodiscard]] double series(const std::string& name_and_labels) const;

  TestClock clock;
  FakeBackend backend;
  std::shared_ptr<ByteCodec> codec = std::make_shared<ByteCodec>();
  MetricsRegistry registry{{{"model_name", "tiny"}}};
  std::unique_ptr<Frontend> frontend;
};

}  // namespace baton::frontend
