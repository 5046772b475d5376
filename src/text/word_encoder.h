// From one word to its tokens: the two algorithms behind one call.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/merging.h"
#include "text/vocab.h"

namespace baton::text {

/// Immutable, so thread-safe; all working memory is the caller's.
class WordEncoder {
 public:
  virtual ~WordEncoder() = default;
  /// Appends the tokens of `word` (any bytes, not empty) to `out`.
  virtual void encode(std::string_view word, MergeScratch& scratch,
                      std::vector<TokenId>& out) const = 0;
};

/// Byte-pair encoding by ranked merges, over bytes (kByteBpe) or characters (kCharBpe).
class BpeEncoder final : public WordEncoder {
 public:
  /// `merges`: "left right", best first. kCorrupt names the first one without two halves.
  /// `vocab` must outlive the encoder.
  [[nodiscard]] static Result<std::unique_ptr<BpeEncoder>> create(
      const Vocab& vocab, const std::vector<std::string>& merges);
  void encode(std::string_view word, MergeScratch& scratch,
              std::vector<TokenId>& out) const override;

 private:
  explicit BpeEncoder(const Vocab& vocab) : vocab_(vocab) {}
  int32_t intern(const std::string& symbol);

  const Vocab& vocab_;
  MergeTable merges_;
  /// Symbols that merges mention and the vocabulary lacks; their ids follow the vocabulary's.
  std::unordered_map<std::string, int32_t> extra_;
  std::array<int32_t, 256> byte_symbols_{};  ///< kByteBpe: symbol of each byte, or -1
};

/// SentencePiece's BPE: of all neighbours that together are a token, join those of the best score,
/// but runs of spaces (Vocab::space_runs()) before all others.
class SpmEncoder final : public WordEncoder {
 public:
  /// `vocab` must outlive the encoder.
  explicit SpmEncoder(const Vocab& vocab);
  void encode(std::string_view word, MergeScratch& scratch,
              std::vector<TokenId>& out) const override;

 private:
  const Vocab& vocab_;
  std::vector<uint32_t> ranks_;  ///< [n_tokens]: place of each token, first to be made first
  size_t max_symbol_bytes_ = 0;  ///< no token is longer
};

}  // namespace baton::text
