#include "cli/serving.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "cli/models.h"
#include "cli/version.h"
#include "frontend/chat_renderer.h"
#include "frontend/model_codec.h"

namespace baton::cli {

std::string internal_key() {
  const char* key = std::getenv(kInternalKeyVariable);
  return key == nullptr ? "" : key;
}

std::vector<std::string> served_names(const EngineFlags& flags, const std::string& path) {
  if (!flags.served_model_names.empty()) return flags.served_model_names;
  return {find_known_model(flags.model) != nullptr ? flags.model
                                                   : std::filesystem::path(path).stem().string()};
}

frontend::FrontendOptions frontend_options(const TextModel& text,
                                           const std::vector<std::string>& names) {
  frontend::FrontendOptions out;
  out.card.names = names;
  out.card.eos_ids = text.tokenizer->end_ids();
  out.card.fingerprint = fmt::format("baton-{}", kVersion);
  out.card.created_s =
      std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1);
  out.codec =
      frontend::make_model_codec(text.tokenizer, frontend::make_chat_renderer(text.chat_template));
  out.random_seed = random_seed();
  return out;
}

Result<std::unique_ptr<Trace>> open_trace(const std::string& path, std::string_view process,
                                          Trace::Mode mode) {
  if (path.empty()) return nullptr;
  return Trace::open(path, process, mode);
}

uint64_t random_seed() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

std::string curl_line(const ServerFlags& flags, uint16_t port, bool chat) {
  const std::string key =
      flags.api_key.empty() ? "" : "-H 'Authorization: Bearer '\"$BATON_API_KEY\" ";
  const std::string_view path = chat ? "chat/completions" : "completions";
  const std::string_view body =
      chat
          ? R"({"messages":[{"role":"user","content":"What is the capital of France?"}],"max_tokens":50})"
          : R"({"prompt":"The capital of France is","max_tokens":20})";
  return fmt::format("curl {}/v1/{} {}-H 'Content-Type: application/json' -d '{}'",
                     local_url(flags.host, port), path, key, body);
}

}  // namespace baton::cli
