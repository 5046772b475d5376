#include "engine/handoff.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace baton::engine {
namespace {

constexpr std::string_view kBlocksKey = "kv_blocks ";

}  // namespace

Result<kv::KvLayout> plan_kv(const EngineOptions& options, const model::TokenModel& model) {
  const size_t block_bytes = model.kv_layout(1, options.kv_type).total_bytes();
  const size_t n_blocks = std::min<size_t>(options.kv_bytes / block_bytes,
                                           std::numeric_limits<int32_t>::max() / kv::kBlockTokens);
  if (n_blocks < 2) {
    return fail(
        ErrorCode::kInvalidArgument,
        "--kv-memory {} bytes: one KV block of this model takes {} bytes and two are the least",
        options.kv_bytes, block_bytes);
  }
  return model.kv_layout(static_cast<int>(n_blocks), options.kv_type);
}

shmem::MemberInfo kv_member(const kv::KvLayout& layout, std::string_view model_identity,
                            std::string name) {
  shmem::MemberInfo out;
  out.name = std::move(name);
  out.descriptor = {{"block size", std::to_string(layout.block_tokens)},
                    {"dtype", layout.type == TensorType::kF32 ? "f32" : "bf16"},
                    {"layers", std::to_string(layout.n_layers)},
                    {"kv heads", std::to_string(layout.n_kv_heads)},
                    {"head_dim", std::to_string(layout.head_dim)},
                    {"model", std::string(model_identity)}};
  out.info = fmt::format("{}{}", kBlocksKey, layout.n_blocks);
  return out;
}

Result<kv::KvLayout> peer_layout(const shmem::Peer& peer, const kv::KvLayout& own) {
  kv::KvLayout layout = own;
  std::string_view info = peer.member.info;
  if (info.starts_with(kBlocksKey)) {
    info.remove_prefix(kBlocksKey.size());
    const auto [end, error] =
        std::from_chars(info.data(), info.data() + info.size(), layout.n_blocks);
    if (error == std::errc() && end == info.data() + info.size() && layout.n_blocks > 0) {
      return layout;
    }
  }
  return fail(ErrorCode::kCorrupt, "{}: does not say how many KV blocks it has", peer.member.name);
}

Status check_range(int begin, int end, size_t n_prompt) {
  const auto bad = ErrorCode::kInvalidArgument;
  for (const int at : {begin, end}) {
    if (at < 0 || at % kv::kBlockTokens != 0) {
      return fail(bad, "range [{}, {}): must be of whole blocks of {} tokens", begin, end,
                  kv::kBlockTokens);
    }
  }
  if (begin > end) return fail(bad, "range [{}, {}): ends before it begins", begin, end);
  if (static_cast<size_t>(end) >= n_prompt) {
    return fail(bad, "end {}: must leave at least one of the prompt's {} tokens", end, n_prompt);
  }
  return {};
}

Status check_tokens(std::span<const TokenId> tokens, int n_vocab, const char* what) {
  for (const TokenId id : tokens) {
    if (id < 0 || id >= n_vocab) {
      return fail(ErrorCode::kInvalidArgument, "{} {} is not in [0, {})", what, id, n_vocab);
    }
  }
  return {};
}

}  // namespace baton::engine
