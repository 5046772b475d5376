// baton render MODEL|FILE.jinja: JSON lines of chats on stdin → rendered text on stdout.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <sstream>

#include "cli/command.h"
#include "cli/loaded_model.h"
#include "cli/models.h"
#include "text/render_lines.h"

namespace baton::cli {
namespace {

Result<std::shared_ptr<const text::ChatTemplate>> load_template(const std::string& model) {
  if (model.ends_with(".jinja")) {
    std::ifstream in(model, std::ios::binary);
    if (!in) return fail(ErrorCode::kNotFound, "template '{}': no such file", model);
    std::ostringstream source;
    source << in.rdbuf();
    auto parsed = text::ChatTemplate::create(source.str(), "", "");
    if (!parsed) {
      return fail(parsed.error().code, "{}: {}", model, parsed.error().message);
    }
    return std::make_shared<const text::ChatTemplate>(std::move(*parsed));
  }
  auto path = resolve_model(model);
  if (!path) return tl::unexpected(path.error());
  auto file = open_model(*path);
  if (!file) return tl::unexpected(file.error());
  auto loaded = load_text(**file);
  if (!loaded) return tl::unexpected(loaded.error());
  if (!loaded->chat_template) {
    return fail(ErrorCode::kNotFound, "{}: the file has no chat template", *path);
  }
  return loaded->chat_template;
}

}  // namespace

void add_render(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand("render", "JSON lines of chats in, the template's text out");
  auto model = std::make_shared<std::string>(kDefaultModel);
  command->add_option("MODEL", *model, "a .gguf file, a known name, or a .jinja file")
      ->capture_default_str();
  command->callback([model, &chosen] {
    chosen = [model]() -> Result<int> {
      auto chat_template = load_template(*model);
      if (!chat_template) return tl::unexpected(chat_template.error());
      std::ios::sync_with_stdio(false);
      text::render_lines(std::cin, std::cout, **chat_template);
      std::cout.flush();
      return 0;
    };
  });
}

}  // namespace baton::cli
