#include "frontend/frontend_test_support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/json_writer.h"

namespace baton::frontend {

void FakeExchange::respond(net::HttpResponse answer) {
  EXPECT_FALSE(response.has_value()) << "answered twice";
  response = std::move(answer);
  ended = true;
}

void FakeExchange::start_stream(net::HttpResponse head) {
  EXPECT_FALSE(response.has_value()) << "answered twice";
  response = std::move(head);
  streaming = true;
}

void FakeExchange::post(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  posted_.notify_all();
}

void FakeExchange::wait_and_run_posted() {
  {
    std::unique_lock lock(mutex_);
    posted_.wait(lock, [this] { return !tasks_.empty(); });
  }
  run_posted();
}

void FakeExchange::run_posted() {
  while (has_posted()) {
    std::function<void()> task;
    {
      const std::lock_guard lock(mutex_);
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void FakeExchange::drop_posted() {
  std::deque<std::function<void()>> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(tasks_);
}

bool FakeExchange::has_posted() {
  const std::lock_guard lock(mutex_);
  return !tasks_.empty();
}

void FakeExchange::close() {
  if (close_callback_ && !ended) std::exchange(close_callback_, nullptr)();
}

std::vector<nlohmann::json> FakeExchange::events() const {
  std::vector<nlohmann::json> out;
  std::string_view rest = written;
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    if (end == rest.npos || !rest.starts_with("data: ")) {
      ADD_FAILURE() << "not an event: " << rest;
      break;
    }
    const std::string_view data = rest.substr(6, end - 6);
    EXPECT_EQ(data.find('\n'), data.npos);
    if (data != "[DONE]") out.push_back(nlohmann::json::parse(data));
    rest.remove_prefix(end + 2);
  }
  return out;
}

bool FakeExchange::done_sent() const { return ended && written.ends_with("data: [DONE]\n\n"); }

nlohmann::json FakeExchange::json() const {
  if (!response) {
    ADD_FAILURE() << "not answered";
    return {};
  }
  return nlohmann::json::parse(response->body);
}

Status FakeBackend::submit(TokenRequest request, UpdateSink sink) {
  if (!answers.empty()) {
    Status answer = std::move(answers.front());
    answers.pop_front();
    if (!answer) return answer;
  }
  requests.push_back(
      {.request = std::move(request), .sink = std::move(sink), .cancelled_choices = {}});
  return {};
}

void FakeBackend::cancel(RequestId id, std::optional<int> choice) {
  for (Submitted& one : requests) {
    if (one.request.id != id) continue;
    if (choice) one.cancelled_choices.insert(*choice);
    one.cancelled =
        !choice || one.cancelled_choices.size() == static_cast<size_t>(one.request.n_choices);
    if (one.cancelled) one.sink = nullptr;
  }
}

void FakeBackend::prompt(size_t i, int n_cached) {
  RequestUpdate update{.id = requests[i].request.id, .prompt = PromptInfo{}, .events = {}};
  update.prompt->n_prompt_tokens = static_cast<int>(requests[i].request.prompt.size());
  update.prompt->n_cached_tokens = n_cached;
  if (const auto n = requests[i].request.n_prompt_logprobs) {
    for (size_t t = 0; t < requests[i].request.prompt.size(); ++t) {
      LogprobEntry entry{.logprob = -static_cast<float>(t), .top = {}};
      for (int k = 0; k < *n; ++k) entry.top.push_back({.id = 'A' + k, .logprob = -0.5F});
      update.prompt->prompt_logprobs.push_back(entry);
    }
  }
  requests[i].sink(std::move(update));
}

void FakeBackend::text(size_t i, int choice, const std::string& text,
                       std::optional<FinishReason> finish) {
  TokenEvent out{
      .choice = choice, .tokens = {}, .logprobs = {}, .finish = finish, .stop_id = {}, .error = {}};
  for (const char c : text) out.tokens.push_back(static_cast<unsigned char>(c));
  if (finish == FinishReason::kStop) out.tokens.push_back(ByteCodec::kEos);
  event(i, std::move(out));
}

void FakeBackend::event(size_t i, TokenEvent event) {
  const TokenRequest& request = requests[i].request;
  if (request.n_logprobs && event.logprobs.empty()) {
    for (const TokenId id : event.tokens) {
      LogprobEntry entry{.logprob = -0.25F, .top = {}};
      for (int k = 0; k < *request.n_logprobs; ++k) {
        entry.top.push_back(
            {.id = k == 0 ? id : 'A' + k, .logprob = -0.25F * static_cast<float>(k + 1)});
      }
      event.logprobs.push_back(entry);
    }
  }
  RequestUpdate update{.id = request.id, .prompt = {}, .events = {}};
  update.events.push_back(std::move(event));
  requests[i].sink(std::move(update));
}

namespace {

class ByteDecoder final : public TextDecoder {
 public:
  ByteDecoder(const ByteCodec& codec, bool skip_special) : codec_(codec), skip_(skip_special) {}
  std::string push(TokenId id) override {
    if (skip_ && codec_.is_special(id)) return {};
    held_ += codec_.piece(id);
    // Enough for valid text: a character is out when its last byte is there.
    if (api::is_utf8(held_) || held_.size() >= 4)
      return api::to_valid_utf8(std::exchange(held_, {}));
    return {};
  }
  std::string finish() override {
    return api::to_valid_utf8(std::exchange(held_, {})).empty() ? "" : "\xEF\xBF\xBD";
  }

 private:
  const ByteCodec& codec_;
  bool skip_;
  std::string held_;
};

constexpr const char* kSpecialNames[] = {"<s>", "</s>", "<x>"};

}  // namespace

Result<std::vector<TokenId>> ByteCodec::encode(std::string_view text, bool add_special) const {
  if (before_encode) before_encode(text);
  std::vector<TokenId> out;
  if (add_special) out.push_back(kBos);
  while (!text.empty()) {
    TokenId id = static_cast<unsigned char>(text.front());
    size_t length = 1;
    for (TokenId special = kBos; special <= kSpecial; ++special) {
      if (!text.starts_with(piece(special))) continue;
      id = special;
      length = piece(special).size();
    }
    out.push_back(id);
    text.remove_prefix(length);
  }
  return out;
}

std::unique_ptr<TextDecoder> ByteCodec::decoder(const DecodeMode& mode) const {
  return std::make_unique<ByteDecoder>(*this, mode.skip_special);
}

std::string ByteCodec::piece(TokenId id) const {
  if (id >= kBos && id <= kSpecial) return kSpecialNames[id - kBos];
  if (id == kPair) return "ab";
  return std::string(1, static_cast<char>(id));
}

Result<std::string> ByteCodec::render(const api::ChatPrompt& prompt) const {
  std::string out;
  for (const api::ChatMessage& message : prompt.messages) {
    if (message.content == "refuse")
      return fail(ErrorCode::kInvalidArgument, "the template refuses");
    out += message.role + ":" + message.content + "\n";
  }
  if (prompt.continue_final_message) out.pop_back();
  return prompt.add_generation_prompt ? out + "assistant:" : out;
}

Fixture::Fixture(const std::string& api_key, int max_model_len,
                 std::vector<ExtraRoute> extra_routes) {
  FrontendOptions options;
  options.card = {.names = {"tiny", "alias"},
                  .max_model_len = max_model_len,
                  .n_vocab = ByteCodec::kVocab,
                  .eos_ids = {ByteCodec::kEos},
                  .fingerprint = "fp_test",
                  .created_s = 77};
  options.codec = codec;
  options.api_key = api_key;
  options.extra_routes = std::move(extra_routes);
  options.version_json = [] { return std::string(R"({"version":"0"})"); };
  options.random_seed = 42;
  options.unix_seconds = [] { return int64_t{1234}; };
  auto made = Frontend::create(std::move(options), {backend, registry, clock});
  EXPECT_TRUE(made.has_value());
  frontend = std::move(*made);
}

std::shared_ptr<FakeExchange> Fixture::send(net::HttpRequest request) {
  auto exchange = std::make_shared<FakeExchange>(std::move(request));
  frontend->handle(exchange);
  return exchange;
}

std::shared_ptr<FakeExchange> Fixture::post(const std::string& path, const std::string& body) {
  return send({.method = "POST",
               .path = path,
               .query = {},
               .headers = {{"content-type", "application/json"}},
               .body = body});
}

std::shared_ptr<FakeExchange> Fixture::get(const std::string& path) {
  return send({.method = "GET", .path = path, .query = {}, .headers = {}, .body = {}});
}

double Fixture::series(const std::string& name_and_labels) const {
  const std::string text = registry.text();
  const size_t at = text.find("\n" + name_and_labels + " ");
  if (at == text.npos) {
    ADD_FAILURE() << "no series " << name_and_labels << " in\n" << text;
    return -1;
  }
  return std::stod(text.substr(at + name_and_labels.size() + 2));
}

}  // namespace baton::frontend
