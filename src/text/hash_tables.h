// Two flat hash tables for the tokenizer's inner loops: open addressing, linear probing, at most
// half full, built once and then only read.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton::text {

[[nodiscard]] inline uint64_t hash_bytes(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

/// Number of slots for n entries: a power of two, at least twice n.
[[nodiscard]] inline size_t slots_for(size_t n) { return std::bit_ceil(2 * n + 2); }

/// Strings (held by the table in one block) → a number. Thread-safe once built.
class StringTable {
 public:
  static constexpr int32_t kAbsent = -1;

  /// Room for n strings; drops what was there.
  void reset(size_t n) {
    slots_.assign(slots_for(n), Slot{});
    text_.clear();
  }
  /// Adds a string; the first one wins. The table must have been given room for it.
  void insert(std::string_view key, int32_t value) {
    const uint64_t hash = hash_bytes(key);
    Slot& slot = slots_[probe(key, hash)];
    if (slot.value != kAbsent) return;
    slot = {static_cast<uint32_t>(hash >> 32), value, text_.size(),
            static_cast<uint32_t>(key.size())};
    text_ += key;
  }
  [[nodiscard]] int32_t find(std::string_view key) const { return find(key, hash_bytes(key)); }
  /// With the hash already at hand: hash_bytes(key).
  [[nodiscard]] int32_t find(std::string_view key, uint64_t hash) const {
    return slots_.empty() ? kAbsent : slots_[probe(key, hash)].value;
  }

 private:
  struct Slot {
    uint32_t hash_high = 0;
    int32_t value = kAbsent;
    size_t offset = 0;  ///< in text_
    uint32_t n_bytes = 0;
  };
  /// Index of the key's slot, or of the free one where it would go.
  [[nodiscard]] size_t probe(std::string_view key, uint64_t hash) const {
    const size_t mask = slots_.size() - 1;
    size_t i = hash & mask;
    while (slots_[i].value != kAbsent) {
      const Slot& slot = slots_[i];
      if (slot.hash_high == hash >> 32 &&
          std::string_view(text_).substr(slot.offset, slot.n_bytes) == key) {
        break;
      }
      i = (i + 1) & mask;
    }
    return i;
  }

  std::vector<Slot> slots_;
  std::string text_;
};

/// A merge of two symbols: `rank` (lower goes first) and the symbol they become.
struct Merge {
  uint32_t rank = UINT32_MAX;
  int32_t symbol = -1;  ///< -1: they don't merge
};

/// Pairs of symbols (both ≥ 0) → their merge. Thread-safe once built.
class MergeTable {
 public:
  void reset(size_t n) { slots_.assign(slots_for(n), Slot{}); }
  /// Adds a merge; the first one for a pair wins.
  void insert(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[probe(key(left, right))];
    if (slot.merge.symbol < 0) slot = {key(left, right), merge};
  }
  [[nodiscard]] Merge find(int32_t left, int32_t right) const {
    return slots_[probe(key(left, right))].merge;
  }

 private:
  struct Slot {
    uint64_t pair = 0;
    Merge merge;
  };
  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  [[nodiscard]] size_t probe(uint64_t pair) const {
    const size_t mask = slots_.size() - 1;
    // Fibonacci hashing: the high bits of the product depend on all bits of the pair.
    size_t i = ((pair * 0x9E3779B97F4A7C15U) >> 32) & mask;
    while (slots_[i].merge.symbol >= 0 && slots_[i].pair != pair) i = (i + 1) & mask;
    return i;
  }

  std::vector<Slot> slots_;
};

}  // namespace baton::text
