// baton tokenize MODEL: JSON lines on stdin → JSON lines on stdout.
#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/command.h"
#include "cli/loaded_model.h"
#include "cli/models.h"
#include "text/tokenize_lines.h"

namespace baton::cli {
namespace {

Result<int> tokenize(const std::string& model, text::LinesMode mode) {
  auto path = resolve_model(model);
  if (!path) return tl::unexpected(path.error());
  auto file = open_model(*path);
  if (!file) return tl::unexpected(file.error());
  auto tokenizer = load_tokenizer(**file);
  if (!tokenizer) return tl::unexpected(tokenizer.error());
  std::ios::sync_with_stdio(false);
  text::tokenize_lines(std::cin, std::cout, **tokenizer, mode);
  std::cout.flush();
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand("tokenize", "JSON lines of text in, token ids out, or back");
  auto model = std::make_shared<std::string>(kDefaultModel);
  auto decode = std::make_shared<bool>(false);
  command->add_option("MODEL", *model, "a .gguf file (vocabulary-only will do) or a known name")
      ->capture_default_str();
  command->add_flag("--decode", *decode, "ids in, text out");
  command->callback([model, decode, &chosen] {
    chosen = [model, decode] {
      return tokenize(*model, *decode ? text::LinesMode::kDecode : text::LinesMode::kEncode);
    };
  });
}

}  // namespace baton::cli
