// What the commands that serve have in common: from MODEL to the options of a frontend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/trace.h"
#include "cli/engine_flags.h"
#include "cli/loaded_model.h"
#include "cli/server_flags.h"
#include "frontend/frontend.h"

namespace baton::cli {

/// The variable by which a supervisor hands the engines' key over, and a person can.
inline constexpr const char* kInternalKeyVariable = "BATON_INTERNAL_KEY";
/// Its value; empty = none.
[[nodiscard]] std::string internal_key();

/// The names clients may use: those given, else the known name or the file's.
[[nodiscard]] std::vector<std::string> served_names(const EngineFlags& flags,
                                                    const std::string& path);

/// All but what only an engine knows (max_model_len, n_vocab, version, fingerprint's kernels).
[[nodiscard]] frontend::FrontendOptions frontend_options(const TextModel& text,
                                                         const std::vector<std::string>& names);

/// nullptr without --trace.
[[nodiscard]] Result<std::unique_ptr<Trace>> open_trace(const std::string& path,
                                                        std::string_view process, Trace::Mode mode);

[[nodiscard]] uint64_t random_seed();

/// The line a person can copy.
[[nodiscard]] std::string curl_line(const ServerFlags& flags, uint16_t port, bool chat);

}  // namespace baton::cli
