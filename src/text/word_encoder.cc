#include "text/word_encoder.h"

#include <algorithm>

#include "format/gguf.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

/// Cuts `word` into characters; the bytes of an incomplete or wrong one stay together.
template <typename SymbolFn>
void split_characters(std::string_view word, std::vector<Symbol>& symbols, SymbolFn&& symbol_of) {
  symbols.clear();
  for (size_t begin = 0; begin < word.size();) {
    const size_t n = utf8_step(word.substr(begin)).n_bytes;
    symbols.push_back(
        {symbol_of(word.substr(begin, n)), static_cast<uint32_t>(begin), static_cast<uint32_t>(n)});
    begin += n;
  }
}

}  // namespace

int32_t BpeEncoder::intern(const std::string& symbol) {
  const int32_t known = vocab_.symbols().find(symbol);
  if (known >= 0) return known;
  const int32_t added = vocab_.size() + static_cast<int32_t>(extra_.size());
  return extra_.emplace(symbol, added).first->second;
}

Result<std::unique_ptr<BpeEncoder>> BpeEncoder::create(const Vocab& vocab,
                                                       const std::vector<std::string>& merges) {
  constexpr size_t kMaxMerges = 1U << 26;
  if (merges.size() > kMaxMerges) {
    return fail(ErrorCode::kCorrupt, "tokenizer.ggml.merges has {} entries, more than {}",
                merges.size(), kMaxMerges);
  }
  std::unique_ptr<BpeEncoder> encoder(new BpeEncoder(vocab));
  encoder->merges_.reset(merges.size());
  const bool bytes = vocab.model() == VocabModel::kByteBpe;
  for (size_t i = 0; i < merges.size(); ++i) {
    // A half may be a space itself, so the first character is never the separator.
    const size_t space = merges[i].empty() ? std::string::npos : merges[i].find(' ', 1);
    if (space == std::string::npos || space + 1 == merges[i].size()) {
      return fail(ErrorCode::kCorrupt,
                  "tokenizer.ggml.merges[{}] is {}, not of the form 'left right'", i,
                  format::quoted(merges[i]));
    }
    std::string left = merges[i].substr(0, space);
    std::string right = merges[i].substr(space + 1);
    if (bytes) {
      left = bytes_from_alphabet(left);
      right = bytes_from_alphabet(right);
    }
    const int32_t left_id = encoder->intern(left);
    const int32_t right_id = encoder->intern(right);
    encoder->merges_.insert(left_id, right_id,
                            {static_cast<uint32_t>(i), encoder->intern(left + right)});
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string symbol(1, static_cast<char>(byte));
    const int32_t known = vocab.symbols().find(symbol);
    const auto extra = encoder->extra_.find(symbol);
    encoder->byte_symbols_[byte] =
        known >= 0 || extra == encoder->extra_.end() ? known : extra->second;
  }
  return encoder;
}

void BpeEncoder::encode(std::string_view word, MergeScratch& scratch,
                        std::vector<TokenId>& out) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  if (vocab_.model() == VocabModel::kByteBpe) {
    symbols.resize(word.size());
    for (size_t i = 0; i < word.size(); ++i) {
      symbols[i] = {byte_symbols_[static_cast<uint8_t>(word[i])], static_cast<uint32_t>(i), 1};
    }
  } else {
    split_characters(word, symbols, [this](std::string_view character) {
      const int32_t known = vocab_.symbols().find(character);
      if (known >= 0) return known;
      const auto extra = extra_.find(std::string(character));
      return extra == extra_.end() ? -1 : extra->second;
    });
  }
  merge_symbols(scratch, [this](const Symbol& left, const Symbol& right) {
    return left.id < 0 || right.id < 0 ? Merge{} : merges_.find(left.id, right.id);
  });
  for (const Symbol& symbol : symbols) {
    if (vocab_.contains(symbol.id)) {
      out.push_back(symbol.id);
    } else {
      vocab_.append_bytes(word.substr(symbol.begin, symbol.n_bytes), out);
    }
  }
}

SpmEncoder::SpmEncoder(const Vocab& vocab) : vocab_(vocab) {
  std::vector<float> scores = vocab.data().scores;
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  const size_t n_runs = vocab.space_runs().size();
  ranks_.reserve(vocab.data().scores.size());
  for (const float score : vocab.data().scores) {
    const auto at = std::lower_bound(scores.begin(), scores.end(), score, std::greater<>());
    ranks_.push_back(static_cast<uint32_t>(n_runs + static_cast<size_t>(at - scores.begin())));
  }
  for (size_t i = 0; i < n_runs; ++i) {
    ranks_[static_cast<size_t>(vocab.space_runs()[i])] = static_cast<uint32_t>(i);
  }
  for (const std::string& token : vocab.data().tokens) {
    max_symbol_bytes_ = std::max(max_symbol_bytes_, token.size());
  }
}

void SpmEncoder::encode(std::string_view word, MergeScratch& scratch,
                        std::vector<TokenId>& out) const {
  split_characters(word, scratch.symbols, [](std::string_view) { return -1; });
  merge_symbols(scratch, [&](const Symbol& left, const Symbol& right) {
    const size_t n_bytes = left.n_bytes + right.n_bytes;
    if (n_bytes > max_symbol_bytes_) return Merge{};
    const int32_t id = vocab_.symbols().find(word.substr(left.begin, n_bytes));
    return id < 0 ? Merge{} : Merge{ranks_[static_cast<size_t>(id)], id};
  });
  for (const Symbol& symbol : scratch.symbols) {
    const std::string_view bytes = word.substr(symbol.begin, symbol.n_bytes);
    const TokenId id = symbol.id >= 0 ? symbol.id : vocab_.symbols().find(bytes);
    if (id >= 0) {
      out.push_back(id);
    } else {
      vocab_.append_bytes(bytes, out);
    }
  }
}

}  // namespace baton::text
