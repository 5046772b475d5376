#include "text/vocab.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

/// Control tokens by these names end a generation; and a token by such a name is a control token,
/// also where a converter has called it user-defined. Names as in the models' own files.
constexpr std::string_view kEndNames[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<|tool_response>",
    "<turn|>",
    "</s>",
    "[e~[",
    "<｜end▁of▁sentence｜>",
};

/// Fill-in-the-middle marks: control tokens too, but they end nothing.
constexpr std::string_view kControlNames[] = {
    "<|fim_prefix|>", "<fim-prefix>",    "<fim_prefix>",    "<｜fim▁begin｜>", "<PRE>",
    "▁<PRE>",         "<|code_prefix|>", "<|prefix|>",      "<|fim_suffix|>",  "<fim-suffix>",
    "<fim_suffix>",   "<｜fim▁hole｜>",  "<SUF>",           "▁<SUF>",          "<|code_suffix|>",
    "<|suffix|>",     "<|fim_middle|>",  "<fim-middle>",    "<fim_middle>",    "<｜fim▁end｜>",
    "<MID>",          "▁<MID>",          "<|code_middle|>", "<|middle|>",      "<|fim_pad|>",
    "<fim-pad>",      "<fim_pad>",       "<PAD>",           "[PAD]",           "<|fim_repo|>",
    "<|repo_name|>",  "<fim-repo>",      "<REPO>",          "<reponame>",      "<|file_sep|>",
};

bool is_one_of(std::string_view text, const auto& names) {
  return std::find(std::begin(names), std::end(names), text) != std::end(names);
}

/// "<0xNN>" → the byte.
std::optional<uint8_t> byte_of(std::string_view spelled) {
  if (spelled.size() != 6 || !spelled.starts_with("<0x") || spelled.back() != '>') return {};
  int value = 0;
  for (const char c : spelled.substr(3, 2)) {
    int digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'A' && c <= 'F') {
      digit = c - 'A' + 10;
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return {};
    }
    value = value * 16 + digit;
  }
  return static_cast<uint8_t>(value);
}

std::string without_space_marks(std::string_view spelled) {
  std::string text;
  size_t done = 0;
  for (size_t at = 0; (at = spelled.find(kSpaceMark, done)) != std::string_view::npos;) {
    text += spelled.substr(done, at - done);
    text += ' ';
    done = at + kSpaceMark.size();
  }
  text += spelled.substr(done);
  return text;
}

}  // namespace

Result<Vocab> Vocab::create(VocabData data) {
  Vocab vocab;
  vocab.data_ = std::move(data);
  if (Status checked = vocab.check(); !checked) return tl::unexpected(checked.error());
  vocab.find_types();
  vocab.find_space_runs();
  vocab.find_end_ids();
  vocab.index();
  return vocab;
}

Status Vocab::check() const {
  constexpr size_t kMaxTokens = 1U << 24;
  const size_t n = data_.tokens.size();
  if (n == 0)
    return fail(ErrorCode::kCorrupt,
                "tokenizer.ggml.tokens is empty, but at least one token is needed");
  if (n > kMaxTokens) {
    return fail(ErrorCode::kCorrupt, "tokenizer.ggml.tokens has {} entries, more than {}", n,
                kMaxTokens);
  }
  if (!data_.types.empty() && data_.types.size() != n) {
    return fail(ErrorCode::kCorrupt,
                "tokenizer.ggml.token_type has {} entries, but there are {} tokens",
                data_.types.size(), n);
  }
  if (data_.model == VocabModel::kSpm && data_.scores.size() != n) {
    return fail(ErrorCode::kCorrupt,
                "tokenizer.ggml.scores has {} entries, but there are {} tokens",
                data_.scores.size(), n);
  }
  for (size_t i = 0; i < data_.scores.size(); ++i) {
    if (std::isnan(data_.scores[i])) {
      return fail(ErrorCode::kCorrupt, "tokenizer.ggml.scores[{}] is not a number", i);
    }
  }
  const auto check_id = [n](std::string_view what, TokenId id) -> Status {
    if (id >= 0 && static_cast<size_t>(id) < n) return {};
    return fail(ErrorCode::kCorrupt, "{} is {}, but must be a token, from 0 to {}", what, id,
                n - 1);
  };
  const std::pair<std::string_view, std::optional<TokenId>> single[] = {
      {"tokenizer.ggml.bos_token_id", data_.bos_id},
      {"tokenizer.ggml.eos_token_id", data_.eos_id},
      {"tokenizer.ggml.unknown_token_id", data_.unk_id}};
  for (const auto& [what, id] : single) {
    if (!id) continue;
    if (Status checked = check_id(what, *id); !checked) return checked;
  }
  const std::pair<std::string_view, const std::vector<TokenId>*> several[] = {
      {"tokenizer.ggml.eot_token_id or eom_token_id", &data_.end_ids},
      {"a token that swallows white space", &data_.strips_left},
      {"a token that swallows white space", &data_.strips_right}};
  for (const auto& [what, ids] : several) {
    for (const TokenId id : *ids) {
      if (Status checked = check_id(what, id); !checked) return checked;
    }
  }
  return {};
}

void Vocab::find_types() {
  const size_t n = data_.tokens.size();
  types_ = data_.types;
  types_.resize(n, TokenType::kNormal);
  // "</s>" is the partner of "<s>", or an HTML tag.
  const auto bos = std::find(data_.tokens.begin(), data_.tokens.end(), "<s>");
  const bool has_bos =
      bos != data_.tokens.end() &&
      types_[static_cast<size_t>(bos - data_.tokens.begin())] == TokenType::kControl;
  for (size_t i = 0; i < n; ++i) {
    if (types_[i] != TokenType::kUserDefined) continue;
    const std::string_view name = data_.tokens[i];
    if (name == "</s>" ? has_bos : is_one_of(name, kEndNames) || is_one_of(name, kControlNames)) {
      types_[i] = TokenType::kControl;
    }
  }
}

void Vocab::find_space_runs() {
  if (data_.model != VocabModel::kSpm) return;
  for (TokenId id = 0; id < size(); ++id) {
    if (type(id) != TokenType::kUserDefined) continue;
    std::string& spelled = data_.tokens[static_cast<size_t>(id)];
    // Converters write the spaces themselves, SentencePiece their marks.
    const std::string spaces = without_space_marks(spelled);
    if (spaces.empty() || spaces.find_first_not_of(' ') != std::string::npos) continue;
    spelled.clear();
    for (size_t i = 0; i < spaces.size(); ++i) spelled += kSpaceMark;
    types_[static_cast<size_t>(id)] = TokenType::kNormal;
    space_runs_.push_back(id);
  }
}

void Vocab::find_end_ids() {
  end_ids_ = data_.end_ids;
  if (data_.eos_id) end_ids_.push_back(*data_.eos_id);
  bool has_return = false;
  std::optional<TokenId> end;
  for (TokenId id = 0; id < size(); ++id) {
    const std::string_view name = data_.tokens[static_cast<size_t>(id)];
    if (type(id) != TokenType::kControl || !is_one_of(name, kEndNames)) continue;
    has_return = has_return || name == "<|return|>" || name == "<|flush|>";
    if (name == "<|end|>") end = id;
    end_ids_.push_back(id);
  }
  // Where "<|return|>" ends an answer, "<|end|>" only ends one of its messages.
  if (has_return && end) std::erase(end_ids_, *end);
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
}

std::string Vocab::decoded(TokenId id) const {
  const std::string& spelled = data_.tokens[static_cast<size_t>(id)];
  switch (type(id)) {
    case TokenType::kControl:
    case TokenType::kUnknown:
    case TokenType::kUserDefined:
      return spelled;
    case TokenType::kByte:
      if (const auto byte = byte_of(spelled)) return std::string(1, static_cast<char>(*byte));
      break;
    case TokenType::kNormal:
    case TokenType::kUnused:
      break;
  }
  return data_.model == VocabModel::kByteBpe ? bytes_from_alphabet(spelled)
                                             : without_space_marks(spelled);
}

void Vocab::index_symbols() {
  symbols_.reset(data_.tokens.size());
  const bool bytes = data_.model == VocabModel::kByteBpe;
  // Normal tokens first: where two spell the same, merging makes the normal one.
  for (const bool normal : {true, false}) {
    for (TokenId id = 0; id < size(); ++id) {
      if ((type(id) == TokenType::kNormal) != normal) continue;
      const std::string& spelled = data_.tokens[static_cast<size_t>(id)];
      if (!bytes) {
        symbols_.insert(spelled, id);
      } else if (is_in_alphabet(spelled)) {  // others can't come out of merging bytes
        symbols_.insert(bytes_from_alphabet(spelled), id);
      }
    }
  }
}

void Vocab::index() {
  byte_ids_.fill(-1);
  std::vector<SpecialMatcher::Entry> text_entries;
  std::vector<SpecialMatcher::Entry> all_entries;
  index_symbols();
  offsets_.push_back(0);
  for (TokenId id = 0; id < size(); ++id) {
    const std::string decoded_bytes = decoded(id);
    bytes_ += decoded_bytes;
    offsets_.push_back(bytes_.size());
    max_token_bytes_ = std::max(max_token_bytes_, decoded_bytes.size());
    const std::string_view spelled = data_.tokens[static_cast<size_t>(id)];
    if (type(id) == TokenType::kByte) {
      if (const auto byte = byte_of(spelled); byte && byte_ids_[*byte] < 0) byte_ids_[*byte] = id;
    }
    if (spelled.empty()) continue;
    if (type(id) == TokenType::kUserDefined) text_entries.push_back({spelled, id});
    if (type(id) == TokenType::kUserDefined || is_special(id)) all_entries.push_back({spelled, id});
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte_ids_[byte] >= 0) continue;
    const std::string named = fmt::format("<0x{:02X}>", byte);
    byte_ids_[byte] = symbols_.find(std::string(1, static_cast<char>(byte)));
    if (byte_ids_[byte] < 0 && data_.model != VocabModel::kByteBpe) {
      byte_ids_[byte] = symbols_.find(named);
    }
  }
  text_matcher_ = SpecialMatcher(std::move(text_entries));
  all_matcher_ = SpecialMatcher(std::move(all_entries));
}

void Vocab::append_bytes(std::string_view bytes, std::vector<TokenId>& out) const {
  bool unknown = false;
  for (const char c : bytes) {
    const TokenId id = byte_ids_[static_cast<uint8_t>(c)];
    if (id >= 0) out.push_back(id);
    unknown = unknown || id < 0;
  }
  if (unknown && data_.unk_id && data_.model != VocabModel::kByteBpe) out.push_back(*data_.unk_id);
}

TokenId Vocab::find_spelling(std::string_view spelling) const {
  const auto at = std::find(data_.tokens.begin(), data_.tokens.end(), spelling);
  return at == data_.tokens.end() ? -1 : static_cast<TokenId>(at - data_.tokens.begin());
}

bool Vocab::strips_left(TokenId id) const {
  return std::find(data_.strips_left.begin(), data_.strips_left.end(), id) !=
         data_.strips_left.end();
}

bool Vocab::strips_right(TokenId id) const {
  return std::find(data_.strips_right.begin(), data_.strips_right.end(), id) !=
         data_.strips_right.end();
}

}  // namespace baton::text
