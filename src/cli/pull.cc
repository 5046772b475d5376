// baton pull NAME
#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/models.h"

namespace baton::cli {

void add_pull(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand("pull", "fetch a known small model into the cache");
  auto name = std::make_shared<std::string>(kDefaultModel);
  std::string names;
  for (const auto& model : known_models()) {
    names += (names.empty() ? "" : ", ") + std::string(model.name);
  }
  command->add_option("NAME", *name, "one of " + names)->capture_default_str();
  command->callback([name, names, &chosen] {
    chosen = [name, names]() -> Result<int> {
      const KnownModel* model = find_known_model(*name);
      if (model == nullptr) {
        return fail(ErrorCode::kNotFound, "pull: '{}' is not one of {}", *name, names);
      }
      auto path = pull(*model);
      if (!path) return tl::unexpected(path.error());
      fmt::print("{}\n", *path);
      return 0;
    };
  });
}

}  // namespace baton::cli
