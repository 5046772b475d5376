// The fields that completions and chat share.
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "api/field_reader.h"

namespace baton::api {
namespace {

constexpr int64_t kIntMax = std::numeric_limits<int32_t>::max();
constexpr int64_t kIntMin = std::numeric_limits<int32_t>::min();
constexpr double kFloatMax = std::numeric_limits<float>::max();

/// "logit_bias": {"id": bias, …}
void read_logit_bias(FieldReader& reader, int n_vocab, SamplingParams& sampling) {
  const nlohmann::json* map = reader.find("logit_bias");
  if (map == nullptr) return;
  if (!map->is_object()) {
    return reader.fail("logit_bias", "'logit_bias' must be an object of token id to bias, not {}",
                       describe(*map));
  }
  for (const auto& [key, value] : map->items()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= n_vocab) {
      return reader.fail("logit_bias",
                         "'logit_bias' has the key '{}', which is no token id from 0 to {}",
                         key.substr(0, 32), n_vocab - 1);
    }
    const double bias = value.is_number() ? value.get<double>() : std::nan("");
    if (!(bias >= -100 && bias <= 100)) {
      return reader.fail("logit_bias",
                         "'logit_bias' of token {} must be a number from -100 to 100, not {}", id,
                         describe(value));
    }
    sampling.logit_bias.emplace_back(static_cast<TokenId>(id), static_cast<float>(bias));
  }
}

SamplingParams read_sampling(FieldReader& reader, const RequestLimits& limits) {
  SamplingParams out;
  out.temperature = reader.number("temperature", 0, 2).value_or(out.temperature);
  out.top_p = reader.number("top_p", 0, 1).value_or(out.top_p);
  // Also catches what is positive as a double but 0 as a float.
  if (out.top_p <= 0) reader.fail("top_p", "'top_p' must be above 0");
  const int64_t top_k = reader.integer("top_k", {-1, kIntMax}).value_or(0);
  out.top_k = top_k < 0 ? 0 : static_cast<int>(top_k);
  out.min_p = reader.number("min_p", 0, 1).value_or(out.min_p);
  out.presence_penalty = reader.number("presence_penalty", -2, 2).value_or(out.presence_penalty);
  out.frequency_penalty = reader.number("frequency_penalty", -2, 2).value_or(out.frequency_penalty);
  out.repetition_penalty =
      reader.number("repetition_penalty", 0, kFloatMax).value_or(out.repetition_penalty);
  if (!std::isnormal(out.repetition_penalty)) {
    reader.fail("repetition_penalty", "'repetition_penalty' must be above 0");
  }
  read_logit_bias(reader, limits.n_vocab, out);
  return out;
}

std::vector<std::string> read_stop(FieldReader& reader, const RequestLimits& limits) {
  const nlohmann::json* stop = reader.find("stop");
  if (stop == nullptr) return {};
  std::vector<std::string> out;
  const auto add = [&](const nlohmann::json& value) {
    const auto size = value.is_string() ? value.get_ref<const std::string&>().size() : 0;
    if (size == 0 || size > static_cast<size_t>(limits.max_stop_bytes)) {
      return reader.fail("stop", "'stop' must be a string of 1 to {} bytes or a list of those",
                         limits.max_stop_bytes);
    }
    out.push_back(value.get<std::string>());
  };
  if (!stop->is_array()) {
    add(*stop);
    return out;
  }
  if (stop->size() > static_cast<size_t>(limits.max_stop_strings)) {
    reader.fail("stop", "'stop' has {} strings, at most {} are supported", stop->size(),
                limits.max_stop_strings);
    return {};
  }
  for (const nlohmann::json& value : *stop) add(value);
  return out;
}

void read_stream(FieldReader& reader, GenerationParams& params) {
  params.stream = reader.boolean("stream").value_or(false);
  const nlohmann::json* options = reader.find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    return reader.fail("stream_options", "'stream_options' must be an object, not {}",
                       describe(*options));
  }
  if (!params.stream) {
    return reader.fail("stream_options", "'stream_options' is only allowed with 'stream': true");
  }
  FieldReader inner(*options, "stream_options.");
  params.include_usage = inner.boolean("include_usage").value_or(false);
  for (const char* key : {"include_obfuscation", "continuous_usage_stats"}) {
    if (inner.boolean(key).value_or(false)) {
      inner.fail(key, "'stream_options.{}' is not supported", key);
    }
  }
  if (inner.failed()) reader.fail(std::move(inner.error().value()));
}

void read_lengths(FieldReader& reader, GenerationParams& params) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  params.max_tokens = reader.integer("max_tokens", {0, kMax});
  const auto max_completion = reader.integer("max_completion_tokens", {0, kMax});
  if (max_completion) {
    if (params.max_tokens && *params.max_tokens != *max_completion) {
      reader.fail("max_completion_tokens",
                  "'max_tokens' is {} and 'max_completion_tokens' {}: give one", *params.max_tokens,
                  *max_completion);
    }
    params.max_tokens = max_completion;
  }
  params.min_tokens = static_cast<int>(reader.integer("min_tokens", {0, kIntMax}).value_or(0));
  if (params.max_tokens && params.min_tokens > *params.max_tokens) {
    reader.fail("min_tokens", "'min_tokens' is {}, more than 'max_tokens' {}", params.min_tokens,
                *params.max_tokens);
  }
}

/// True for values that ask for nothing: false, "", [], {}, 0.
bool is_empty(const nlohmann::json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return (value.is_array() || value.is_object()) && value.empty();
}

/// Fields of OpenAI's or vLLM's schema that would change the answer and that this server lacks.
void refuse_unsupported(FieldReader& reader) {
  static constexpr const char* kNeverFine[] = {"suffix",
                                               "audio",
                                               "prediction",
                                               "prompt_cache_key",
                                               "prompt_cache_retention",
                                               "reasoning_effort",
                                               "safety_identifier",
                                               "verbosity",
                                               "web_search_options",
                                               "moderation",
                                               "prompt_logprobs",
                                               "truncate_prompt_tokens",
                                               "chat_template"};
  static constexpr const char* kFineIfEmpty[] = {"functions",
                                                 "guided_json",
                                                 "guided_regex",
                                                 "guided_choice",
                                                 "guided_grammar",
                                                 "structured_outputs",
                                                 "use_beam_search",
                                                 "bad_words",
                                                 "allowed_token_ids",
                                                 "include_stop_str_in_output",
                                                 "logits_processors",
                                                 "documents",
                                                 "tools"};
  for (const char* key : kNeverFine) {
    if (reader.find(key) != nullptr) reader.fail(key, "'{}' is not supported", key);
  }
  for (const char* key : kFineIfEmpty) {
    const nlohmann::json* value = reader.find(key);
    if (value != nullptr && !is_empty(*value)) reader.fail(key, "'{}' is not supported", key);
  }
}

/// Fields that are fine with the one value that says what this server does anyway.
void refuse_all_but_default(FieldReader& reader) {
  const auto check = [&](const char* key, std::initializer_list<nlohmann::json> fine) {
    const nlohmann::json* value = reader.find(key);
    if (value == nullptr) return;
    for (const nlohmann::json& one : fine) {
      if (*value == one) return;
    }
    reader.fail(key, "'{}' is only supported as {}", key, fine.begin()->dump());
  };
  check("tool_choice", {"none"});
  check("function_call", {"none"});
  check("parallel_tool_calls", {true});
  check("modalities", {nlohmann::json::array({"text"})});
  check("response_format", {{{"type", "text"}}});
  check("service_tier", {"auto", "default"});
  // Documented no-ops; their types still count.
  (void)reader.string("user");
  (void)reader.boolean("store");
  const nlohmann::json* metadata = reader.find("metadata");
  if (metadata != nullptr && !metadata->is_object()) {
    reader.fail("metadata", "'metadata' must be an object, not {}", describe(*metadata));
  }
}

}  // namespace

GenerationParams read_generation_params(FieldReader& reader, const RequestLimits& limits) {
  GenerationParams params;
  params.model = reader.string("model");
  refuse_unsupported(reader);
  refuse_all_but_default(reader);
  params.sampling = read_sampling(reader, limits);
  const auto seed = reader.integer(
      "seed", {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()});
  params.has_seed = seed.has_value();
  params.sampling.seed = static_cast<uint64_t>(seed.value_or(0));
  params.n = static_cast<int>(reader.integer("n", {1, limits.max_choices}).value_or(1));
  const auto best_of = reader.integer("best_of", {1, limits.max_choices});
  if (best_of && *best_of != params.n) {
    reader.fail("best_of", "'best_of' is {}: only the value of 'n' ({}) is supported", *best_of,
                params.n);
  }
  read_lengths(reader, params);
  params.stop = read_stop(reader, limits);
  params.stop_token_ids =
      reader.token_ids("stop_token_ids", limits.n_vocab).value_or(std::vector<TokenId>{});
  params.ignore_eos = reader.boolean("ignore_eos").value_or(false);
  params.skip_special_tokens = reader.boolean("skip_special_tokens").value_or(true);
  params.add_special_tokens = reader.boolean("add_special_tokens");
  params.return_token_ids = reader.boolean("return_token_ids").value_or(false);
  params.return_tokens_as_token_ids = reader.boolean("return_tokens_as_token_ids").value_or(false);
  params.priority = static_cast<int>(reader.integer("priority", {kIntMin, kIntMax}).value_or(0));
  read_stream(reader, params);
  return params;
}

}  // namespace baton::api
