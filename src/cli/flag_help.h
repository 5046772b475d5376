// Small helpers of the files that declare flags. Included by .cc files only (CLI11 is heavy).
#pragma once

#include <CLI/CLI.hpp>

#include "base/result.h"

namespace baton::cli {

/// `add("--port", flags.port, "port to listen on")`: a flag whose default is shown in the help.
struct FlagAdder {
  CLI::App& command;

  template <typename T>
  CLI::Option* operator()(const char* names, T& value, const char* help) const {
    return command.add_option(names, value, help)->capture_default_str();
  }
};

inline Status check_range(const char* flag, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return fail(ErrorCode::kInvalidArgument, "{} {}: must be between {} and {}", flag, value, low,
              high);
}

}  // namespace baton::cli
