#include "text/vocab_gguf.h"

#include <algorithm>
#include <string_view>

namespace baton::text {
namespace {

using format::GgufMetadata;

constexpr std::string_view kPrefix = "tokenizer.ggml.";

std::string key(std::string_view name) { return fmt::format("{}{}", kPrefix, name); }

/// Reads an optional key into an optional; an error only if the type is wrong.
template <typename T, typename Out>
Status read(const GgufMetadata& metadata, std::string_view name, std::optional<Out>& out) {
  const std::string full = key(name);
  if (!metadata.contains(full)) return {};
  const Result<T> value = metadata.get<T>(full);
  if (!value) return tl::unexpected(value.error());
  out = static_cast<Out>(*value);
  return {};
}

Status read_strings(const GgufMetadata& metadata, std::string_view name,
                    std::vector<std::string>& out) {
  const auto views = metadata.get<std::vector<std::string_view>>(key(name));
  if (!views) return tl::unexpected(views.error());
  out.assign(views->begin(), views->end());
  return {};
}

Status read_model(const GgufMetadata& metadata, VocabData& data) {
  const auto model = metadata.get<std::string_view>(key("model"));
  if (!model) return tl::unexpected(model.error());
  const auto pre = metadata.get_or<std::string_view>(key("pre"), "");
  if (!pre) return tl::unexpected(pre.error());
  data.pre = *pre;
  if (*model == "gpt2") {
    data.model = VocabModel::kByteBpe;
  } else if (*model == "gemma4") {
    data.model = VocabModel::kCharBpe;
  } else if (*model == "llama") {
    data.model = VocabModel::kSpm;
    // What the format's first readers assumed, and files may rely on.
    data.bos_id = 1;
    data.eos_id = 2;
    data.unk_id = 0;
  } else {
    return fail(ErrorCode::kUnsupported,
                "tokenizer.ggml.model is {}; known are gpt2, llama and gemma4",
                format::quoted(*model));
  }
  return {};
}

Status read_tokens(const GgufMetadata& metadata, VocabData& data) {
  if (Status read = read_strings(metadata, "tokens", data.tokens); !read) return read;
  if (metadata.contains(key("token_type"))) {
    const auto types = metadata.get<std::vector<int32_t>>(key("token_type"));
    if (!types) return tl::unexpected(types.error());
    data.types.reserve(types->size());
    for (const int32_t type : *types) {
      const bool known = type >= static_cast<int32_t>(TokenType::kNormal) &&
                         type <= static_cast<int32_t>(TokenType::kByte);
      data.types.push_back(known ? static_cast<TokenType>(type) : TokenType::kUnused);
    }
  }
  if (data.model == VocabModel::kSpm) {
    auto scores = metadata.get<std::vector<float>>(key("scores"));
    if (!scores) return tl::unexpected(scores.error());
    data.scores = std::move(*scores);
    return {};
  }
  return read_strings(metadata, "merges", data.merges);
}

Status read_special(const GgufMetadata& metadata, VocabData& data) {
  if (Status s = read<int32_t>(metadata, "bos_token_id", data.bos_id); !s) return s;
  if (Status s = read<int32_t>(metadata, "eos_token_id", data.eos_id); !s) return s;
  if (Status s = read<int32_t>(metadata, "unknown_token_id", data.unk_id); !s) return s;
  if (Status s = read<bool>(metadata, "add_bos_token", data.add_bos); !s) return s;
  if (Status s = read<bool>(metadata, "add_eos_token", data.add_eos); !s) return s;
  if (Status s = read<bool>(metadata, "add_space_prefix", data.add_space_prefix); !s) return s;
  // Byte-level vocabularies have a space of their own kind; the key says nothing about them.
  if (data.model != VocabModel::kSpm) data.add_space_prefix = false;
  for (const std::string_view name : {"eot_token_id", "eom_token_id"}) {
    std::optional<TokenId> id;
    if (Status s = read<int32_t>(metadata, name, id); !s) return s;
    if (id) data.end_ids.push_back(*id);
  }
  return {};
}

/// GGUF has no key for tokens that swallow the white space after them. Phi-3's do, all but three;
/// its files are known by their name.
void find_stripping(const GgufMetadata& metadata, VocabData& data) {
  const auto name = metadata.get_or<std::string_view>("general.name", "");
  if (!name) return;
  std::string lower(*name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.find("phi-3") == std::string::npos && lower.find("phi3") == std::string::npos) return;
  for (size_t i = 0; i < data.types.size() && i < data.tokens.size(); ++i) {
    const std::string& token = data.tokens[i];
    const bool special = data.types[i] == TokenType::kControl ||
                         data.types[i] == TokenType::kUnknown ||
                         data.types[i] == TokenType::kUserDefined;
    if (special && token != "<unk>" && token != "<s>" && token != "<|endoftext|>") {
      data.strips_right.push_back(static_cast<TokenId>(i));
    }
  }
}

}  // namespace

Result<VocabData> vocab_from_gguf(const GgufMetadata& metadata) {
  VocabData data;
  for (const auto read : {read_model, read_tokens, read_special}) {
    if (Status done = read(metadata, data); !done) return tl::unexpected(done.error());
  }
  find_stripping(metadata, data);
  return data;
}

}  // namespace baton::text
