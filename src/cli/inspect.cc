// baton inspect MODEL: what was understood of a model file, and what it needs.
#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/loaded_model.h"
#include "cli/models.h"
#include "model/checkpoint.h"

namespace baton::cli {
namespace {

double mib(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void row(std::string_view name, const std::string& value) { fmt::print("{:<22}{}\n", name, value); }

void print_spec(const model::ModelSpec& spec) {
  row("architecture",
      spec.architecture + (spec.name.empty() ? "" : fmt::format(" ({})", spec.name)));
  row("layers", fmt::format("{}", spec.n_layers()));
  row("hidden / ffn", fmt::format("{} / {}", spec.hidden, spec.ffn));
  row("heads",
      fmt::format("{} query, {} key-value, {} wide", spec.n_heads, spec.n_kv_heads, spec.head_dim));
  row("vocabulary",
      fmt::format("{}{}", spec.n_vocab, spec.tied_head ? ", output matrix = embedding" : ""));
  row("context", fmt::format("{} tokens", spec.context_length));
  int n_sliding = 0;
  int window = 0;
  for (const auto& layer : spec.layers) {
    if (layer.window == 0) continue;
    ++n_sliding;
    window = layer.window;
  }
  if (n_sliding > 0) {
    row("sliding window",
        fmt::format("{} of {} layers see the last {} tokens", n_sliding, spec.n_layers(), window));
  }
  for (const auto& rope : spec.ropes) {
    row("rope",
        fmt::format(
            "base {}, {} of {} values, {}{}{}", rope.base, rope.n_rot, spec.head_dim,
            rope.style == linalg::RopeStyle::kHalf ? "halves" : "interleaved",
            rope.linear_factor != 1.0 ? fmt::format(", linear factor {}", rope.linear_factor) : "",
            rope.divisors.empty() ? "" : ", scaled by rope_freqs.weight"));
  }
  row("norms",
      fmt::format("RMS, eps {}{}{}", spec.norm_eps, spec.qk_norms ? ", on q and k too" : "",
                  spec.post_norms ? ", before and after each branch" : ""));
}

void print_text(const TextModel& text) {
  row("tokenizer", text.tokenizer->description());
  std::string ends;
  for (const TokenId id : text.tokenizer->end_ids()) {
    ends += fmt::format("{}{} {}", ends.empty() ? "" : ", ", id, text.tokenizer->token_str(id));
  }
  row("bos / ends", fmt::format("{} / {}", text.tokenizer->bos_id(), ends));
  row("chat template", text.chat_template
                           ? fmt::format("{} bytes", text.chat_template_source.size())
                           : std::string("none: /v1/completions only"));
}

Result<int> inspect(const std::string& model) {
  auto path = resolve_model(model);
  if (!path) return tl::unexpected(path.error());
  auto file = open_model(*path);
  if (!file) return tl::unexpected(file.error());
  auto text = load_text(**file);
  if (!text) return tl::unexpected(text.error());
  auto checkpoint = model::read_checkpoint(*file);
  if (!checkpoint) return tl::unexpected(checkpoint.error());

  row("file", fmt::format("{}, GGUF v{}, {:.1f} MiB", *path, (*file)->version(),
                          mib((*file)->size_bytes())));
  print_spec(checkpoint->spec);
  print_text(*text);
  for (const auto& [type, use] : model::tensor_types(**file)) {
    row(fmt::format("tensors {}", type),
        fmt::format("{} tensors, {:.1f} M values, {:.1f} MiB", use.n_tensors,
                    static_cast<double>(use.n_values) / 1e6, mib(use.bytes)));
  }
  auto kernels = chosen_kernels();
  if (!kernels) return tl::unexpected(kernels.error());
  const auto needs = model::memory_needs(*checkpoint, *kernels);
  const auto weights = [&](size_t layers) {
    return fmt::format("{:.1f} MiB", mib(layers + needs.head_bytes));
  };
  const bool alike = needs.both_weights_bytes == needs.decode_weights_bytes;
  row("weights, prefill", weights(needs.prefill_weights_bytes) +
                              (alike ? " (as for decode)" : " (bf16, the head as in the file)"));
  row("weights, decode", weights(needs.decode_weights_bytes) + " (the file's blocks)");
  row("weights, both", weights(needs.both_weights_bytes));
  row("KV per token", fmt::format("{:.1f} KiB (bf16), {:.1f} KiB (f32)",
                                  static_cast<double>(needs.kv_bytes_per_token_bf16) / 1024,
                                  static_cast<double>(needs.kv_bytes_per_token_f32) / 1024));
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Run& chosen) {
  auto* command =
      app.add_subcommand("inspect", "show what was understood of a model, and its memory needs");
  auto model = std::make_shared<std::string>(kDefaultModel);
  command->add_option("MODEL", *model, "a .gguf file or a known name")->capture_default_str();
  command->callback([model, &chosen] { chosen = [model] { return inspect(*model); }; });
}

}  // namespace baton::cli
