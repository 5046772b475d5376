// The only main: picks the command, prints errors as one line, maps them to exit statuses.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/command.h"
#include "cli/version.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app("baton: LLM serving with prefill and decode as engines of their own");
  app.set_version_flag("--version",
                       fmt::format("baton {} ({})", baton::cli::kVersion, baton::cli::kCommit));
  app.require_subcommand(1);
  baton::cli::Run chosen;
  baton::cli::add_serve(app, chosen);
  baton::cli::add_engine(app, chosen);
  baton::cli::add_router(app, chosen);
  baton::cli::add_pull(app, chosen);
  baton::cli::add_inspect(app, chosen);
  baton::cli::add_tokenize(app, chosen);
  baton::cli::add_render(app, chosen);
  baton::cli::add_bench(app, chosen);
  const auto named = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(named).empty()) {
    std::fprintf(stderr, "baton: unknown command '%s' (baton --help lists the commands)\n",
                 argv[1]);
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    std::fprintf(stderr, "baton: %s (baton --help lists the commands)\n", e.what());
    return 2;
  }
  const auto status = chosen();
  if (status) return *status;
  std::fprintf(stderr, "baton: %s\n", status.error().message.c_str());
  return status.error().code == baton::ErrorCode::kInvalidArgument ? 2 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "baton: %s\n", e.what());
    return 1;
  }
}
