// What every command of `baton` looks like to main: it declares its flags and says what to run.
#pragma once

#include <functional>

#include "base/result.h"

namespace CLI {
class App;
}

namespace baton::cli {

/// The chosen command's body: the exit status, or the one line that goes to stderr. An error of
/// code kInvalidArgument is a bad command line (exit 2), any other exit 1.
using Run = std::function<Result<int>()>;

/// Each adds its subcommand to `app`; when that one is chosen, `chosen` is set to its body.
void add_serve(CLI::App& app, Run& chosen);
void add_engine(CLI::App& app, Run& chosen);
void add_router(CLI::App& app, Run& chosen);
void add_pull(CLI::App& app, Run& chosen);
void add_inspect(CLI::App& app, Run& chosen);
void add_tokenize(CLI::App& app, Run& chosen);
void add_render(CLI::App& app, Run& chosen);
void add_bench(CLI::App& app, Run& chosen);

}  // namespace baton::cli
