// BlockCache against NaiveBlockCache: every sequence of a few steps, and long random ones.
#include <gtest/gtest.h>

#include <random>

#include "kv/block_cache.h"
#include "kv/naive_block_cache.h"

namespace baton::kv {
namespace {

using Table = std::vector<BlockId>;
using Tokens = std::vector<TokenId>;

struct Geometry {
  int n_blocks;
  int block_tokens;
};

/// Runs every operation on both caches and compares all that can be seen.
class Twins {
 public:
  Twins(Geometry geometry, uint64_t hash_seed)
      : geometry_(geometry),
        cache_(geometry.n_blocks, geometry.block_tokens, hash_seed),
        naive_(geometry.n_blocks, geometry.block_tokens) {}

  /// As an engine admits a request: matched prefix + fresh blocks, or nothing at all.
  std::optional<Table> admit(const Tokens& tokens) {
    const int n_total =
        (static_cast<int>(tokens.size()) + geometry_.block_tokens - 1) / geometry_.block_tokens;
    const int n_fresh = n_total - cache_.match_tokens(tokens) / geometry_.block_tokens;
    const bool fits = n_fresh <= cache_.available() - cache_.match_evictable(tokens);
    Table table = cache_.acquire_prefix(tokens);
    const Table matched = naive_.match(tokens);
    EXPECT_EQ(table, matched);
    naive_.retain(matched);
    const bool allocated = allocate(n_fresh, table);
    EXPECT_EQ(allocated, fits);
    if (allocated) return table;
    release(table);
    return std::nullopt;
  }
  bool allocate(int n, Table& table) {
    Table expected = table;
    const bool ok = cache_.allocate(n, table);
    EXPECT_EQ(ok, naive_.allocate(n, expected));
    EXPECT_EQ(table, expected);
    return ok;
  }
  void commit(const Tokens& tokens, const Table& table) {
    cache_.commit(tokens, table);
    naive_.commit(tokens, table);
  }
  void retain(const Table& table) {
    cache_.retain(table);
    naive_.retain(table);
  }
  void release(const Table& table) {
    cache_.release(table);
    naive_.release(table);
  }
  void mark_leased(const Table& table) {
    cache_.mark_leased(table);
    naive_.change_leases(table, 1);
  }
  void unmark_leased(const Table& table) {
    cache_.unmark_leased(table);
    naive_.change_leases(table, -1);
  }
  void clear_cached() {
    cache_.clear_cached();
    naive_.clear_cached();
  }

  void check() const {
    const BlockCounts counts = cache_.counts();
    const BlockCounts expected = naive_.counts();
    ASSERT_EQ(counts.free, expected.free);
    ASSERT_EQ(counts.used, expected.used);
    ASSERT_EQ(counts.cached, expected.cached);
    ASSERT_EQ(counts.leased, expected.leased);
    ASSERT_EQ(counts.free + counts.used + counts.cached + counts.leased, geometry_.n_blocks);
    ASSERT_EQ(cache_.available(), naive_.available());
    for (int i = 0; i < geometry_.n_blocks; ++i) {
      ASSERT_EQ(cache_.shared(BlockId{i}), naive_.shared(BlockId{i})) << i;
    }
  }
  void check_match(const Tokens& tokens) const {
    ASSERT_EQ(cache_.match_tokens(tokens) / geometry_.block_tokens,
              static_cast<int>(naive_.match(tokens).size()));
    ASSERT_EQ(cache_.match_evictable(tokens), naive_.match_evictable(tokens));
  }
  /// Takes every block there is, one by one: the order shows the whole free list and LRU list.
  void drain() {
    Table table;
    while (allocate(1, table)) {
    }
    check();
    release(table);
    check();
    ASSERT_EQ(cache_.counts().cached, 0);
  }
  [[nodiscard]] int n_holders(BlockId block) const { return naive_.n_holders(block); }

 private:
  Geometry geometry_;
  BlockCache cache_;
  NaiveBlockCache naive_;
};

struct Running {
  Tokens tokens;
  Table table;
  bool leased = false;
};

// Every sequence of kSteps steps of two requests over all prompts of 1 to 3 tokens in {0, 1}.
class EverySequence {
 public:
  static constexpr Geometry kGeometry{.n_blocks = 4, .block_tokens = 1};
  static constexpr int kSteps = 5;

  EverySequence() {
    for (int n = 1; n <= 3; ++n) {
      for (int bits = 0; bits < 1 << n; ++bits) {
        Tokens tokens;
        for (int i = 0; i < n; ++i) tokens.push_back(bits >> i & 1);
        prompts_.push_back(tokens);
      }
    }
  }

  void run() {
    std::vector<int> steps;
    extend(steps);
  }
  int n_sequences = 0;

 private:
  // Steps of slot s: 0 = release or fork, 1 = commit, 2 … = admit a prompt.
  void extend(std::vector<int>& steps) {
    if (testing::Test::HasFatalFailure()) return;
    const int n_kinds = 2 * (2 + static_cast<int>(prompts_.size()));
    for (int step = 0; step < n_kinds; ++step) {
      steps.push_back(step);
      // A sequence whose last step can't be done is the shorter one again.
      if (replay(steps)) {
        ++n_sequences;
        if (static_cast<int>(steps.size()) < kSteps) extend(steps);
      }
      steps.pop_back();
    }
  }

  bool replay(const std::vector<int>& steps) {
    Twins twins(kGeometry, 0);
    std::optional<Running> slots[2];
    for (size_t i = 0; i < steps.size(); ++i) {
      if (!apply(twins, slots[steps[i] % 2], steps[i] / 2)) return false;
    }
    twins.check();
    for (const Tokens& tokens : prompts_) twins.check_match(tokens);
    for (auto& slot : slots) {
      if (slot) twins.release(slot->table);
    }
    twins.drain();
    return true;
  }

  bool apply(Twins& twins, std::optional<Running>& slot, int action) {
    if (action >= 2) {
      if (slot) return false;
      const Tokens& tokens = prompts_[static_cast<size_t>(action - 2)];
      const auto table = twins.admit(tokens);
      if (!table) return false;
      slot = Running{tokens, *table};
      return true;
    }
    if (!slot) return false;
    if (action == 1) {
      twins.commit(slot->tokens, slot->table);
    } else {
      twins.release(slot->table);
      slot.reset();
    }
    return true;
  }

  std::vector<Tokens> prompts_;
};

TEST(BlockCacheExhaustive, EverySequenceOfFewSteps) {
  EverySequence every;
  every.run();
  EXPECT_GT(every.n_sequences, 10000);
}

/// A random engine: requests come, share prefixes, grow, fork, are preempted and go.
class RandomEngine {
 public:
  RandomEngine(uint64_t seed, Geometry geometry)
      : random_(seed), geometry_(geometry), twins_(geometry, seed) {}

  void run(int n_steps) {
    for (int i = 0; i < n_steps && !testing::Test::HasFatalFailure(); ++i) {
      step();
      twins_.check();
      twins_.check_match(tokens());
      check_holders();
    }
    for (Running& running : running_) {
      drop_lease(running);
      twins_.release(running.table);
    }
    twins_.check();
    twins_.drain();
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  /// Few distinct tokens, half of the time the start of a known prompt, so that prefixes are
  /// shared.
  Tokens tokens() {
    const int max = geometry_.n_blocks * geometry_.block_tokens;
    Tokens tokens;
    if (!known_.empty() && below(2) == 0) {
      const Tokens& known = known_[static_cast<size_t>(below(static_cast<int>(known_.size())))];
      tokens.assign(known.begin(), known.begin() + below(static_cast<int>(known.size()) + 1));
    }
    const int n = below(max / 2 + 1);
    for (int i = 0; i < n && static_cast<int>(tokens.size()) < max; ++i) tokens.push_back(below(2));
    if (tokens.empty()) tokens.push_back(0);
    return tokens;
  }

  void step() {
    const int kind = below(18);
    if (kind == 0) return twins_.clear_cached();
    if (kind < 6 || running_.empty()) return admit();
    const auto i = static_cast<size_t>(below(static_cast<int>(running_.size())));
    if (kind < 9) return commit(running_[i]);
    if (kind < 11) return grow(running_[i]);
    if (kind < 12) {
      twins_.retain(running_[i].table);
      running_.push_back({running_[i].tokens, running_[i].table});
      return;
    }
    if (kind >= 16) return toggle_lease(running_[i]);
    drop_lease(running_[i]);
    twins_.release(running_[i].table);
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
  }

  void toggle_lease(Running& running) {
    if (running.leased) return drop_lease(running);
    twins_.mark_leased(running.table);
    running.leased = true;
  }
  void drop_lease(Running& running) {
    if (running.leased) twins_.unmark_leased(running.table);
    running.leased = false;
  }

  void admit() {
    Tokens prompt = tokens();
    const auto table = twins_.admit(prompt);
    if (!table) return;
    known_.push_back(prompt);
    running_.push_back({std::move(prompt), *table});
  }

  /// Commits some start of the tokens, as after a chunk of a prefill.
  void commit(const Running& running) {
    const int n = below(static_cast<int>(running.tokens.size()) + 1);
    twins_.commit(Tokens(running.tokens.begin(), running.tokens.begin() + n), running.table);
  }

  /// One more token. A tail block that others hold too must be replaced first, as an engine would
  /// copy it.
  void grow(Running& running) {
    if (running.leased) return;
    const size_t n_full = running.tokens.size() / static_cast<size_t>(geometry_.block_tokens);
    if (n_full < running.table.size()) {
      if (twins_.n_holders(running.table[n_full]) > 1) return;
    } else if (!twins_.allocate(1, running.table)) {
      return;
    }
    running.tokens.push_back(below(2));
    known_.push_back(running.tokens);
  }

  void check_holders() {
    std::vector<int> n_holders(static_cast<size_t>(geometry_.n_blocks), 0);
    for (const Running& running : running_) {
      for (const BlockId block : running.table) ++n_holders[static_cast<size_t>(block.value)];
    }
    for (int i = 0; i < geometry_.n_blocks; ++i) {
      ASSERT_EQ(twins_.n_holders(BlockId{i}), n_holders[static_cast<size_t>(i)]);
    }
  }

  std::mt19937_64 random_;
  Geometry geometry_;
  Twins twins_;
  std::vector<Running> running_;
  std::vector<Tokens> known_;
};

TEST(BlockCacheRandom, AgreesWithTheNaiveOne) {
  const Geometry geometries[] = {{1, 1}, {3, 1}, {8, 1}, {8, 2}, {13, 3}, {24, 1}, {24, 4}};
  for (const Geometry geometry : geometries) {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << geometry.n_blocks
                                      << " blocks of " << geometry.block_tokens);
      RandomEngine(seed, geometry).run(250);
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace baton::kv
