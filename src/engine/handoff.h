// What both sides of a KV handoff agree on before anything is sent: layout, model, who is where.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/handoff.h"
#include "base/result.h"
#include "engine/options.h"
#include "kv/layout.h"
#include "model/token_model.h"
#include "shmem/heap.h"

namespace baton::engine {

/// How KV will lie in the memory of an engine with these options; an engine in a symmetric world
/// needs total_bytes() of it on its first PE. kInvalidArgument: --kv-memory holds too few blocks.
[[nodiscard]] Result<kv::KvLayout> plan_kv(const EngineOptions& options,
                                           const model::TokenModel& model);

/// What an engine tells the others when it joins their world: a descriptor that must be equal, of
/// everything layout_hash covers, and how many blocks it has. `name`: "engine 1 (decode)".
[[nodiscard]] shmem::MemberInfo kv_member(const kv::KvLayout& layout,
                                          std::string_view model_identity, std::string name);

/// The layout of `peer`'s memory: ours with its number of blocks. kCorrupt: it says nothing of
/// them.
[[nodiscard]] Result<kv::KvLayout> peer_layout(const shmem::Peer& peer, const kv::KvLayout& own);

/// The rules that any range of a prompt keeps: 0 <= begin <= end < n_prompt, whole blocks.
[[nodiscard]] Status check_range(int begin, int end, size_t n_prompt);
[[nodiscard]] Status check_tokens(std::span<const TokenId> tokens, int n_vocab, const char* what);

}  // namespace baton::engine
