// For tests only: BlockCache written down as plainly as possible, every answer computed from
// scratch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "kv/block_cache.h"

namespace baton::kv {

/// The yardstick of the randomised tests. No tree, no list, no counters: a block knows its holders,
/// the whole prefix it stands for, and when it became idle.
class NaiveBlockCache {
 public:
  using Tokens = std::vector<TokenId>;

  NaiveBlockCache(int n_blocks, int block_tokens) : block_tokens_(block_tokens) {
    blocks_.resize(static_cast<size_t>(n_blocks));
    for (int i = n_blocks - 1; i >= 0; --i) free_.push_back(BlockId{i});
  }

  [[nodiscard]] BlockCounts counts() const {
    BlockCounts counts;
    counts.free = static_cast<int>(free_.size());
    for (const Block& block : blocks_) counts.cached += idle(block) ? 1 : 0;
    for (const Block& block : blocks_) {
      counts.leased += block.n_holders > 0 && block.n_leases == block.n_holders ? 1 : 0;
    }
    counts.used = static_cast<int>(blocks_.size()) - counts.free - counts.cached - counts.leased;
    return counts;
  }
  [[nodiscard]] int available() const { return counts().free + counts().cached; }

  [[nodiscard]] std::vector<BlockId> match(std::span<const TokenId> tokens) const {
    std::vector<BlockId> table;
    for (size_t n = step(); n <= tokens.size(); n += step()) {
      const auto block = holder_of(Tokens(tokens.begin(), tokens.begin() + ptrdiff_t(n)));
      if (!block) break;
      table.push_back(*block);
    }
    return table;
  }
  [[nodiscard]] int match_evictable(std::span<const TokenId> tokens) const {
    const auto table = match(tokens);
    return static_cast<int>(
        std::ranges::count_if(table, [&](BlockId id) { return idle(block(id)); }));
  }

  void retain(std::span<const BlockId> table) {
    for (const BlockId id : table) {
      ++block(id).n_holders;
      note_idle();
    }
  }
  void release(std::span<const BlockId> table) {
    for (size_t i = table.size(); i-- > 0;) {
      Block& dropped = block(table[i]);
      if (--dropped.n_holders == 0 && !dropped.prefix) free_.push_back(table[i]);
      note_idle();
    }
  }
  void change_leases(std::span<const BlockId> table, int by) {
    for (const BlockId id : table) block(id).n_leases += by;
  }
  bool allocate(int n, std::vector<BlockId>& table) {
    if (n > available()) return false;
    for (int i = 0; i < n; ++i) {
      if (free_.empty()) evict();
      table.push_back(free_.back());
      free_.pop_back();
      block(table.back()).n_holders = 1;
    }
    return true;
  }
  void commit(std::span<const TokenId> tokens, std::span<const BlockId> table) {
    for (size_t i = 0; (i + 1) * step() <= tokens.size(); ++i) {
      Tokens prefix(tokens.begin(), tokens.begin() + ptrdiff_t((i + 1) * step()));
      if (!holder_of(prefix)) block(table[i]).prefix = std::move(prefix);
      note_idle();
    }
  }
  void clear_cached() {
    while (counts().cached > 0) evict();
  }
  [[nodiscard]] bool shared(BlockId id) const {
    return block(id).n_holders > 1 || block(id).prefix.has_value();
  }
  [[nodiscard]] int n_holders(BlockId id) const { return block(id).n_holders; }

 private:
  static constexpr int64_t kNotIdle = std::numeric_limits<int64_t>::max();
  struct Block {
    int n_holders = 0;
    int n_leases = 0;
    std::optional<Tokens> prefix;  ///< set = in the tree
    int64_t idle_since = kNotIdle;
  };

  [[nodiscard]] size_t step() const { return static_cast<size_t>(block_tokens_); }
  [[nodiscard]] Block& block(BlockId id) { return blocks_[static_cast<size_t>(id.value)]; }
  [[nodiscard]] const Block& block(BlockId id) const {
    return blocks_[static_cast<size_t>(id.value)];
  }

  [[nodiscard]] std::optional<BlockId> holder_of(const Tokens& prefix) const {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].prefix == prefix) return BlockId{static_cast<int32_t>(i)};
    }
    return std::nullopt;
  }
  /// Whether `b` is `a` or comes after it in the tree.
  [[nodiscard]] static bool extends(const Block& b, const Block& a) {
    return b.prefix && b.prefix->size() >= a.prefix->size() &&
           std::equal(a.prefix->begin(), a.prefix->end(), b.prefix->begin());
  }
  [[nodiscard]] bool idle(const Block& a) const {
    return a.prefix && std::ranges::none_of(blocks_, [&](const Block& b) {
             return b.n_holders > 0 && extends(b, a);
           });
  }
  /// Stamps the blocks that have become idle, those deepest in the tree first.
  void note_idle() {
    std::vector<Block*> fresh;
    for (Block& b : blocks_) {
      if (!idle(b)) {
        b.idle_since = kNotIdle;
      } else if (b.idle_since == kNotIdle) {
        fresh.push_back(&b);
      }
    }
    std::ranges::sort(fresh, std::ranges::greater{},
                      [](const Block* b) { return b->prefix->size(); });
    for (Block* b : fresh) b->idle_since = ++now_;
  }
  /// Frees the leaf that has been idle for longest.
  void evict() {
    Block* oldest = nullptr;
    for (Block& b : blocks_) {
      const auto is_child = [&](const Block& c) { return &c != &b && extends(c, b); };
      if (!idle(b) || std::ranges::any_of(blocks_, is_child)) continue;
      if (oldest == nullptr || b.idle_since < oldest->idle_since) oldest = &b;
    }
    oldest->prefix.reset();
    oldest->idle_since = kNotIdle;
    free_.push_back(BlockId{static_cast<int32_t>(oldest - blocks_.data())});
  }

  int block_tokens_;
  int64_t now_ = 0;
  std::vector<Block> blocks_;
  std::vector<BlockId> free_;
};

}  // namespace baton::kv
