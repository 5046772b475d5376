#include "testing/stand_in_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

namespace baton::testing {
namespace {

constexpr int kLayers = 2;

/// splitmix64 (Steele, Lea, Flood 2014).
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

kv::KvLayout StandInModel::kv_layout(int n_blocks, TensorType type) const {
  // One K row is one Entry.
  const int head_dim = static_cast<int>(sizeof(Entry)) / info(type).block_bytes;
  return {.n_layers = kLayers,
          .n_blocks = n_blocks,
          .n_kv_heads = 1,
          .head_dim = head_dim,
          .block_tokens = kv::kBlockTokens,
          .type = type};
}

void StandInModel::bind_kv(const kv::KvLayout& layout, std::byte* memory) {
  layout_ = layout;
  memory_ = memory;
}

std::byte* StandInModel::place(int layer, const model::SeqSlice& slice, int position) const {
  const auto block = slice.blocks[static_cast<size_t>(position / kv::kBlockTokens)];
  return memory_ + layout_.offset(layer, block) +
         static_cast<size_t>(position % kv::kBlockTokens) * sizeof(Entry);
}

StandInModel::Entry StandInModel::link(uint64_t before, int layer, int position, TokenId token,
                                       linalg::KernelClass kernel_class) const {
  const auto kind = options_.class_matters ? static_cast<int16_t>(kernel_class) : int16_t{0};
  uint64_t chain = mix(before ^ mix(static_cast<uint64_t>(token) + 1));
  chain = mix(chain ^ static_cast<uint64_t>(position) << 32 ^ static_cast<uint64_t>(layer) << 8 ^
              static_cast<uint64_t>(kind));
  return {token, static_cast<int16_t>(position), kind, chain};
}

uint64_t StandInModel::read_chain(const model::SeqSlice& slice, int layer) {
  uint64_t chain = 0;
  for (int position = 0; position < slice.begin; ++position) {
    Entry entry;
    std::memcpy(&entry, place(layer, slice, position), sizeof entry);
    const Entry expected = link(chain, layer, position, entry.token,
                                static_cast<linalg::KernelClass>(entry.kernel_class));
    if (std::memcmp(&entry, &expected, sizeof entry) != 0) {
      faults_.push_back(fmt::format("pass {}: layer {} position {} of a slice at {}: not our KV",
                                    n_passes_, layer, position, slice.begin));
      return chain;
    }
    chain = entry.chain;
  }
  return chain;
}

void StandInModel::forward_layer(const model::SeqSlice& slice, int layer,
                                 std::span<uint64_t> seen) {
  uint64_t chain = read_chain(slice, layer);
  for (int i = 0; i < static_cast<int>(slice.tokens.size()); ++i) {
    const Entry entry = link(chain, layer, slice.begin + i, slice.tokens[static_cast<size_t>(i)],
                             slice.kernel_class);
    std::memcpy(place(layer, slice, slice.begin + i), &entry, sizeof entry);
    chain = entry.chain;
    seen[static_cast<size_t>(i)] ^= chain;
  }
}

float* StandInModel::write_logits(const model::SeqSlice& slice, std::span<const uint64_t> seen,
                                  float* logits) const {
  const int n = static_cast<int>(slice.tokens.size());
  const bool poisoned =
      std::find(slice.tokens.begin(), slice.tokens.end(), poison_token) != slice.tokens.end();
  for (int i = n - slice.n_logits; i < n; ++i) {
    for (int v = 0; v < options_.n_vocab; ++v) {
      const uint64_t bits = mix(seen[static_cast<size_t>(i)] + static_cast<uint64_t>(v));
      *logits++ = poisoned ? std::numeric_limits<float>::quiet_NaN()
                           : static_cast<float>(bits >> 40) / static_cast<float>(1 << 21) - 4.0F;
    }
  }
  return logits;
}

void StandInModel::check_writes(std::span<const model::SeqSlice> slices) {
  std::set<int32_t> written;
  int n_tokens = 0;
  for (const auto& slice : slices) {
    const int n = static_cast<int>(slice.tokens.size());
    n_tokens += n;
    if (n == 0 || slice.n_logits > n ||
        slice.blocks.size() * kv::kBlockTokens < static_cast<size_t>(slice.begin + n)) {
      faults_.push_back(fmt::format("pass {}: slice [{}, {}) with {} logits over {} blocks",
                                    n_passes_, slice.begin, slice.begin + n, slice.n_logits,
                                    slice.blocks.size()));
      continue;
    }
    for (int block = slice.begin / kv::kBlockTokens; block * kv::kBlockTokens < slice.begin + n;
         ++block) {
      const int32_t id = slice.blocks[static_cast<size_t>(block)].value;
      if (!written.insert(id).second) {
        faults_.push_back(fmt::format("pass {}: two slices write block {}", n_passes_, id));
      }
    }
  }
  n_tokens_ += n_tokens;
  max_pass_tokens_ = std::max(max_pass_tokens_, n_tokens);
}

void StandInModel::forward(std::span<const model::SeqSlice> slices, float* logits,
                           model::LayerHook* hook) {
  if (on_forward) on_forward(slices);
  ++n_passes_;
  check_writes(slices);
  std::vector<std::vector<uint64_t>> seen;
  for (const auto& slice : slices) seen.emplace_back(slice.tokens.size(), 0);
  for (const auto kernel_class : {linalg::KernelClass::kPrefill, linalg::KernelClass::kDecode}) {
    const bool used = std::any_of(slices.begin(), slices.end(), [&](const model::SeqSlice& slice) {
      return slice.kernel_class == kernel_class;
    });
    if (!used) continue;
    for (int layer = 0; layer < layout_.n_layers; ++layer) {
      if (hook != nullptr) hook->on_layer_begin(layer, kernel_class);
      for (size_t i = 0; i < slices.size(); ++i) {
        if (slices[i].kernel_class == kernel_class) forward_layer(slices[i], layer, seen[i]);
      }
      if (on_layer) on_layer(layer);
      if (hook != nullptr) {
        hook->on_kv_stored(layer, kernel_class);
        if (!hook->on_layer_end(layer, kernel_class)) return;
      }
    }
  }
  for (size_t i = 0; i < slices.size(); ++i) logits = write_logits(slices[i], seen[i], logits);
}

}  // namespace baton::testing
