#include "kv/layout.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <string>

namespace baton::kv {
namespace {

/// To be counted up whenever the order of dimensions in a block changes.
constexpr uint64_t kLayoutVersion = 1;

void append_little_endian(std::string& bytes, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(value >> shift));
}

}  // namespace

uint64_t layout_hash(const KvLayout& layout, std::string_view model_identity) {
  const std::array<uint64_t, 6> fields{
      kLayoutVersion,
      static_cast<uint64_t>(layout.n_layers),
      static_cast<uint64_t>(layout.n_kv_heads),
      static_cast<uint64_t>(layout.head_dim),
      static_cast<uint64_t>(layout.block_tokens),
      info(layout.type).ggml_id,  // fixed by a file format, unlike our enum's order
  };
  std::string bytes;
  for (const uint64_t field : fields) append_little_endian(bytes, field);
  bytes += model_identity;
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace baton::kv
