#include "text/tokenizer.h"

#include <atomic>
#include <optional>

#include "text/detokenizer.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"
#include "text/vocab.h"
#include "text/word_borders.h"
#include "text/word_cache.h"
#include "text/word_encoder.h"

namespace baton::text {
namespace {

constexpr std::string_view kAsciiSpace = " \t\n\v\f\r";

/// Working memory of one encode call.
struct Scratch {
  MergeScratch merge;
  std::vector<size_t> ends;  ///< of the words of a piece of text
  std::string spelled;       ///< the text with its spaces spelled as U+2581
};

/// Appends `text` with each space as U+2581.
void append_spelled(std::string_view text, std::string& out) {
  size_t done = 0;
  for (size_t at = 0; (at = text.find(' ', done)) != std::string_view::npos; done = at + 1) {
    out += text.substr(done, at - done);
    out += kSpaceMark;
  }
  out += text.substr(done);
}

}  // namespace

struct Tokenizer::Impl {
  Impl(Vocab checked, bool ignores_merges)
      : vocab(std::move(checked)), ignore_merges(ignores_merges) {}

  Status find_words(const std::optional<PreRule>& rule, const std::vector<std::string>& merges);
  void encode_text(std::string_view text, bool at_start, Scratch& scratch,
                   std::vector<TokenId>& out) const;
  void encode_byte_level(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;
  void encode_spelled(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

  const Vocab vocab;
  const bool ignore_merges;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;
  std::unique_ptr<const WordEncoder> encoder;
  std::optional<PreTokenizer> pre;  ///< for kByteBpe
  WordBorders borders;              ///< for the others

  /// Whether a token is what its own text merges into. Most words are such tokens, and then one
  /// look into the vocabulary is all. Found out the first time a word needs it.
  enum class Whole : uint8_t { kUnknown, kYes, kNo };
  mutable std::unique_ptr<std::atomic<Whole>[]> whole;
  WordCache cache;
};

Status Tokenizer::Impl::find_words(const std::optional<PreRule>& rule,
                                   const std::vector<std::string>& merges) {
  if (rule) {
    Result<PreTokenizer> made = PreTokenizer::create(rule->patterns);
    if (!made) return tl::unexpected(made.error());
    pre = std::move(*made);
    return {};
  }
  for (const std::string& spelled : vocab.data().tokens) borders.add(spelled);
  // Merges may make symbols on their way that are no tokens.
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ', 1);
    if (space != std::string::npos) borders.add(merge.substr(0, space) + merge.substr(space + 1));
  }
  return {};
}

void Tokenizer::Impl::encode_word(std::string_view word, Scratch& scratch,
                                  std::vector<TokenId>& out) const {
  const uint64_t hash = hash_bytes(word);
  const TokenId id = vocab.symbols().find(word, hash);
  std::atomic<Whole>* state = nullptr;
  if (id >= 0) {
    state = &whole[static_cast<size_t>(id)];
    if (ignore_merges || state->load(std::memory_order_relaxed) == Whole::kYes) {
      out.push_back(id);
      return;
    }
  }
  if (cache.find(word, hash, out)) return;
  const size_t n_before = out.size();
  encoder->encode(word, scratch.merge, out);
  const size_t n = out.size() - n_before;
  if (state != nullptr && n == 1 && out.back() == id) {
    state->store(Whole::kYes, std::memory_order_relaxed);
  } else {
    cache.insert(word, hash, out.data() + n_before, n);
  }
}

void Tokenizer::Impl::encode_byte_level(std::string_view text, Scratch& scratch,
                                        std::vector<TokenId>& out) const {
  while (!text.empty()) {
    // Bytes that are no character are words of their own.
    const size_t n_valid = valid_utf8_prefix(text);
    scratch.ends.clear();
    pre->split(text.substr(0, n_valid), scratch.ends);
    if (n_valid < text.size()) {
      scratch.ends.push_back(n_valid + utf8_step(text.substr(n_valid)).n_bytes);
    }
    size_t begin = 0;
    for (const size_t end : scratch.ends) {
      encode_word(text.substr(begin, end - begin), scratch, out);
      begin = end;
    }
    text.remove_prefix(begin);
  }
}

void Tokenizer::Impl::encode_spelled(std::string_view text, Scratch& scratch,
                                     std::vector<TokenId>& out) const {
  size_t begin = 0;
  for (size_t at = 1; at < text.size(); ++at) {
    if (!borders.between(text, at)) continue;
    encode_word(text.substr(begin, at - begin), scratch, out);
    begin = at;
  }
  if (begin < text.size()) encode_word(text.substr(begin), scratch, out);
}

void Tokenizer::Impl::encode_text(std::string_view text, bool at_start, Scratch& scratch,
                                  std::vector<TokenId>& out) const {
  if (vocab.model() == VocabModel::kByteBpe) {
    encode_byte_level(text, scratch, out);
    return;
  }
  scratch.spelled.clear();
  if (at_start && add_space_prefix) scratch.spelled += kSpaceMark;
  append_spelled(text, scratch.spelled);
  std::string_view spelled = scratch.spelled;
  if (vocab.model() == VocabModel::kSpm) {
    encode_spelled(spelled, scratch, out);
    return;
  }
  // kCharBpe never merges across the ends of a run of newlines; a run that is a token is that
  // token.
  while (!spelled.empty()) {
    const bool newlines = spelled.front() == '\n';
    const size_t n =
        std::min(newlines ? spelled.find_first_not_of('\n') : spelled.find('\n'), spelled.size());
    const std::string_view run = spelled.substr(0, n);
    const TokenId id = newlines ? vocab.symbols().find(run) : -1;
    if (id >= 0) {
      out.push_back(id);
    } else {
      encode_spelled(run, scratch, out);
    }
    spelled.remove_prefix(n);
  }
}

Result<std::unique_ptr<const Tokenizer>> Tokenizer::create(VocabData data) {
  std::optional<PreRule> rule;
  if (data.model == VocabModel::kByteBpe) {
    Result<PreRule> found = find_pre_rule(data.pre);
    if (!found) return tl::unexpected(found.error());
    rule = std::move(*found);
  }
  const std::vector<std::string> merges = std::move(data.merges);
  data.merges.clear();
  Result<Vocab> vocab = Vocab::create(std::move(data));
  if (!vocab) return tl::unexpected(vocab.error());

  auto impl = std::make_unique<Impl>(std::move(*vocab), rule && rule->ignore_merges);
  const VocabData& known = impl->vocab.data();
  const VocabModel model = known.model;
  const bool default_bos = rule ? rule->add_bos : true;
  impl->add_bos = known.add_bos.value_or(default_bos) && known.bos_id;
  impl->add_eos = known.add_eos.value_or(false) && known.eos_id;
  impl->add_space_prefix = known.add_space_prefix.value_or(model == VocabModel::kSpm);
  if (Status words = impl->find_words(rule, merges); !words) return tl::unexpected(words.error());
  if (model == VocabModel::kSpm) {
    impl->encoder = std::make_unique<SpmEncoder>(impl->vocab);
  } else {
    auto encoder = BpeEncoder::create(impl->vocab, merges);
    if (!encoder) return tl::unexpected(encoder.error());
    impl->encoder = std::move(*encoder);
  }
  impl->whole =
      std::make_unique<std::atomic<Impl::Whole>[]>(static_cast<size_t>(impl->vocab.size()));
  return std::unique_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const Impl& impl = *impl_;
  std::vector<TokenId> out;
  Scratch scratch;
  if (options.add_special && impl.add_bos) out.push_back(bos_id());
  const SpecialMatcher& matcher = impl.vocab.matcher(options.parse_special);
  bool after_special = true;
  for (size_t begin = 0; begin < text.size();) {
    const SpecialMatcher::Match match = matcher.next(text, begin);
    std::string_view between = text.substr(begin, match.begin - begin);
    if (match.id >= 0 && impl.vocab.strips_left(match.id)) {
      between = between.substr(0, between.find_last_not_of(kAsciiSpace) + 1);
    }
    if (!between.empty()) {
      impl.encode_text(between, after_special, scratch, out);
      after_special = false;
    }
    begin = match.begin + match.n_bytes;
    if (match.id < 0) break;
    out.push_back(match.id);
    after_special = true;
    if (impl.vocab.strips_right(match.id)) {
      begin = std::min(text.find_first_not_of(kAsciiSpace, begin), text.size());
    }
  }
  if (options.add_special && impl.add_eos) out.push_back(eos_id());
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  Detokenizer detokenizer(*this, options);
  std::string text = detokenizer.push(ids);
  text += detokenizer.flush();
  return text;
}

int32_t Tokenizer::n_tokens() const { return impl_->vocab.size(); }

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return contains(id) ? impl_->vocab.bytes(id) : std::string_view();
}

std::string Tokenizer::token_str(TokenId id) const { return to_valid_utf8(token_bytes(id)); }

std::string Tokenizer::token_spelling(TokenId id) const {
  return contains(id) ? to_valid_utf8(impl_->vocab.data().tokens[static_cast<size_t>(id)]) : "";
}

size_t Tokenizer::max_token_bytes() const { return impl_->vocab.max_token_bytes(); }

bool Tokenizer::is_special(TokenId id) const { return contains(id) && impl_->vocab.is_special(id); }

TokenId Tokenizer::find_token(std::string_view spelling) const {
  return impl_->vocab.find_spelling(spelling);
}

TokenId Tokenizer::bos_id() const { return impl_->vocab.data().bos_id.value_or(-1); }
TokenId Tokenizer::eos_id() const { return impl_->vocab.data().eos_id.value_or(-1); }
const std::vector<TokenId>& Tokenizer::end_ids() const { return impl_->vocab.end_ids(); }
bool Tokenizer::adds_bos() const { return impl_->add_bos; }
bool Tokenizer::adds_eos() const { return impl_->add_eos; }
bool Tokenizer::adds_space_prefix() const { return impl_->add_space_prefix; }

std::string Tokenizer::description() const {
  const VocabData& data = impl_->vocab.data();
  switch (data.model) {
    case VocabModel::kByteBpe:
      return fmt::format("byte-level BPE, pre-tokeniser {}",
                         data.pre.empty() ? "default" : data.pre);
    case VocabModel::kCharBpe:
      return "character BPE with byte fallback";
    case VocabModel::kSpm:
      return "SentencePiece with byte fallback";
  }
  return {};
}

}  // namespace baton::text
