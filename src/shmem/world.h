// A member's place in the symmetric world, as its starter tells it by environment:
// BATON_SHMEM_INIT_CONFIG_JSON_STR={"uid":"…","npes":N,"pe_start":K[,"join":"first|later"]}
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::shmem {

inline constexpr const char* kWorldVariable = "BATON_SHMEM_INIT_CONFIG_JSON_STR";
inline constexpr int kMaxPes = 1024;        ///< of a world
inline constexpr size_t kMaxUidBytes = 64;  ///< part of the name of a Unix socket (107 bytes)

enum class Join {
  kFirst,  ///< collective: waits until every PE of the world has its member
  kLater,  ///< waits for nobody, connects to whoever is alive
};

struct WorldConfig {
  std::string uid;   ///< names the world: 1 to 64 of A-Z a-z 0-9 . _ -
  int npes = 0;      ///< PEs of the whole world, [1, kMaxPes]
  int pe_start = 0;  ///< this member's first PE, [0, npes)
  Join join = Join::kFirst;
};

/// Strict: an unknown, missing, repeated or mistyped key is refused by name, with its value and
/// what would be right (kInvalidArgument).
[[nodiscard]] Result<WorldConfig> parse_world(std::string_view json);
/// What parse_world() reads.
[[nodiscard]] std::string to_json(const WorldConfig& world);
/// Do `n_pes` devices from pe_start on lie within the world? And is the rest of `world` in range?
[[nodiscard]] Status check_place(const WorldConfig& world, int n_pes);

}  // namespace baton::shmem
