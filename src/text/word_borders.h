// Where a text falls into words that merging can't join, so that each can be merged, and
// remembered, by itself. For vocabularies without a pre-tokeniser of their own.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

namespace baton::text {

/// Two bytes that follow each other can only come into one symbol if some symbol has them together.
/// Of symbols of three bytes and more a third byte is known too: the one before or the one behind.
/// So these are the pairs and the triples of bytes of all symbols; 2 MB. Thread-compatible while it
/// is filled, then thread-safe.
class WordBorders {
 public:
  /// A symbol that merging may make.
  void add(std::string_view symbol) {
    if (symbol.size() == 2) words_.set(pair(symbol[0], symbol[1]));
    for (size_t i = 1; i < symbol.size(); ++i) pairs_.set(pair(symbol[i - 1], symbol[i]));
    if (symbol.size() < 3) return;
    if (triples_.empty()) triples_.resize(size_t{1} << 18);
    for (size_t i = 2; i < symbol.size(); ++i) {
      const size_t bit = triple(symbol[i - 2], symbol[i - 1], symbol[i]);
      triples_[bit / 64] |= uint64_t{1} << (bit % 64);
    }
  }

  /// Whether a word may end before text[at], 0 < at < size: a character begins there, and no symbol
  /// has the bytes on both sides of it. False also where that isn't certain.
  [[nodiscard]] bool between(std::string_view text, size_t at) const {
    constexpr unsigned kContinues = 0x80;  // of a byte that isn't the first of a character
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == kContinues) return false;
    const size_t both = pair(text[at - 1], text[at]);
    if (!pairs_[both]) return true;
    if (words_[both]) return false;
    return !(at >= 2 && has(text[at - 2], text[at - 1], text[at])) &&
           !(at + 1 < text.size() && has(text[at - 1], text[at], text[at + 1]));
  }

 private:
  static size_t pair(char a, char b) {
    return size_t{static_cast<unsigned char>(a)} << 8 | static_cast<unsigned char>(b);
  }
  static size_t triple(char a, char b, char c) {
    return pair(a, b) << 8 | static_cast<unsigned char>(c);
  }
  [[nodiscard]] bool has(char a, char b, char c) const {
    if (triples_.empty()) return false;
    const size_t bit = triple(a, b, c);
    return (triples_[bit / 64] >> (bit % 64) & 1) != 0;
  }

  std::bitset<65536> pairs_;       ///< that some symbol has
  std::bitset<65536> words_;       ///< that are a symbol
  std::vector<uint64_t> triples_;  ///< [2^24 bits] that some symbol has; empty: none
};

}  // namespace baton::text
