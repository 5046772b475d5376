// Remembers the tokens of recent words. Bounded: a fixed number of slots, the newest word wins.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace baton::text {

/// Direct-mapped by the word's hash. Thread-safe. About 0.9 MB.
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 46;
  static constexpr size_t kMaxTokens = 14;

  /// Appends the word's tokens to `out`; false if they are not here.
  bool find(std::string_view word, uint64_t hash, std::vector<TokenId>& out) const {
    if (word.size() > kMaxWordBytes) return false;
    const Slot& slot = slots_[hash % kSlots];
    const std::lock_guard lock(mutexes_[hash % kMutexes]);
    if (slot.n_bytes != word.size() || std::memcmp(slot.word, word.data(), word.size()) != 0) {
      return false;
    }
    out.insert(out.end(), slot.ids, slot.ids + slot.n_ids);
    return true;
  }

  /// Keeps ids [n] for `word`, if both are short enough.
  void insert(std::string_view word, uint64_t hash, const TokenId* ids, size_t n) const {
    if (word.size() > kMaxWordBytes || n > kMaxTokens) return;
    Slot& slot = slots_[hash % kSlots];
    const std::lock_guard lock(mutexes_[hash % kMutexes]);
    slot.n_bytes = static_cast<uint8_t>(word.size());
    slot.n_ids = static_cast<uint8_t>(n);
    std::memcpy(slot.word, word.data(), word.size());
    std::copy_n(ids, n, slot.ids);  // n may be 0: some vocabularies lack some bytes
  }

 private:
  static constexpr size_t kSlots = 8192;
  static constexpr size_t kMutexes = 64;  ///< divides kSlots, so a slot has one mutex
  struct Slot {
    uint8_t n_bytes = 0;  ///< 0: free (words are not empty)
    uint8_t n_ids = 0;
    char word[kMaxWordBytes] = {};
    TokenId ids[kMaxTokens] = {};
  };
  std::unique_ptr<Slot[]> slots_ = std::make_unique<Slot[]>(kSlots);
  mutable std::array<std::mutex, kMutexes> mutexes_;
};

}  // namespace baton::text
