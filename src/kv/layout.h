// Where a token's K and V lie: the layout of one engine's KV memory, and its hash. Pure arithmetic.
// Thread-safe.
//
// Memory: [layer][block][K|V][kv_head][token][head_dim], so that one layer of one block is one
// contiguous run (what a transfer puts) and one head of it too (what attention reads).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/ids.h"
#include "base/tensor_type.h"

namespace baton::kv {

inline constexpr int kBlockTokens = 16;

struct KvLayout {
  int n_layers = 0;
  int n_blocks = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int block_tokens = kBlockTokens;
  TensorType type = TensorType::kBF16;  ///< kBF16 or kF32

  /// Bytes of one block in one layer: K and V of block_tokens tokens.
  [[nodiscard]] size_t block_bytes() const {
    return size_t{2} * static_cast<size_t>(n_kv_heads) * static_cast<size_t>(block_tokens) *
           static_cast<size_t>(head_dim) * static_cast<size_t>(info(type).block_bytes);
  }
  [[nodiscard]] size_t layer_bytes() const { return block_bytes() * static_cast<size_t>(n_blocks); }
  [[nodiscard]] size_t total_bytes() const { return layer_bytes() * static_cast<size_t>(n_layers); }
  [[nodiscard]] size_t offset(int layer, BlockId block) const {
    return layer_bytes() * static_cast<size_t>(layer) +
           block_bytes() * static_cast<size_t>(block.value);
  }
};

/// Equal for two engines if the bytes of a block of one mean the same in the other: same model,
/// same geometry, same type. The number of blocks is left out: engines with more or less memory can
/// exchange blocks. `model_identity` names the weights and whatever else KV depends on (RoPE
/// scaling, …). The same on every machine: it is sent between engines. Source: XXH3 64 of a version
/// tag, the fields as little-endian 64-bit integers, then the identity.
[[nodiscard]] uint64_t layout_hash(const KvLayout& layout, std::string_view model_identity);

}  // namespace baton::kv
