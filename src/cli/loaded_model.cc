#include "cli/loaded_model.h"

#include <cstdlib>

#include "cli/models.h"
#include "text/vocab_gguf.h"

namespace baton::cli {

Result<std::shared_ptr<const format::GgufFile>> open_model(const std::string& path) {
  auto file = format::GgufFile::open(path);
  if (!file) return tl::unexpected(file.error());
  return std::make_shared<const format::GgufFile>(std::move(*file));
}

namespace {

/// An error about what a file holds: it names the file, and is never a bad command line.
tl::unexpected<Error> about(const format::GgufFile& file, Error error) {
  if (error.message.find(file.path()) == std::string::npos) {
    error.message = fmt::format("{}: {}", file.path(), error.message);
  }
  if (error.code == ErrorCode::kInvalidArgument) error.code = ErrorCode::kCorrupt;
  return tl::unexpected(std::move(error));
}

}  // namespace

Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const format::GgufFile& file) {
  auto vocab = text::vocab_from_gguf(file.metadata());
  if (!vocab) return about(file, vocab.error());
  auto tokenizer = text::Tokenizer::create(std::move(*vocab));
  if (!tokenizer) return about(file, tokenizer.error());
  return std::shared_ptr<const text::Tokenizer>(std::move(*tokenizer));
}

Result<TextModel> load_text(const format::GgufFile& file) {
  TextModel out;
  auto tokenizer = load_tokenizer(file);
  if (!tokenizer) return tl::unexpected(tokenizer.error());
  out.tokenizer = std::move(*tokenizer);

  auto source = file.metadata().get_or<std::string_view>("tokenizer.chat_template", {});
  if (!source) return about(file, source.error());
  if (source->empty()) return out;
  out.chat_template_source = std::string(*source);
  const auto spelled = [&](TokenId id) {
    return id < 0 ? std::string() : std::string(out.tokenizer->token_bytes(id));
  };
  auto parsed = text::ChatTemplate::create(
      out.chat_template_source, spelled(out.tokenizer->bos_id()), spelled(out.tokenizer->eos_id()));
  if (!parsed) {
    Error error = parsed.error();
    error.message = "tokenizer.chat_template: " + error.message;
    return about(file, std::move(error));
  }
  out.chat_template = std::make_shared<const text::ChatTemplate>(std::move(*parsed));
  return out;
}

Result<linalg::KernelSet> chosen_kernels(const std::string& wanted) {
  const char* set = wanted.empty() ? std::getenv("BATON_KERNELS") : wanted.c_str();
  return linalg::choose_kernels(set == nullptr ? "" : set, cpu_features());
}

Result<linalg::ActivationType> parse_activations(const std::string& text,
                                                 linalg::KernelSet kernels) {
  if (text == "int16") return linalg::ActivationType::kInt16;
  if (text != "int8") {
    return fail(ErrorCode::kInvalidArgument, "--prefill-activations '{}': use int16 or int8", text);
  }
  if (linalg::has_int8_activations(kernels)) return linalg::ActivationType::kInt8;
  return fail(ErrorCode::kInvalidArgument,
              "--prefill-activations int8: the {} kernels have no such products; use int16, or "
              "kernels that have them (avx512 or portable)",
              linalg::name(kernels));
}

ComputeModel::ComputeModel(linalg::KernelSet kernels, const Options& options)
    : pool_({static_cast<int>(options.cpus.size()), options.cpus}),
      context_{kernels, pool_, workspace_} {}

Result<std::unique_ptr<ComputeModel>> ComputeModel::create(
    std::shared_ptr<const format::GgufFile> file, const Options& options) {
  const auto kernels = chosen_kernels(options.kernels);
  if (!kernels) return tl::unexpected(kernels.error());
  const auto activations = parse_activations(options.prefill_activations, *kernels);
  if (!activations) return tl::unexpected(activations.error());
  auto checkpoint = model::read_checkpoint(std::move(file));
  if (!checkpoint) return tl::unexpected(checkpoint.error());
  std::unique_ptr<ComputeModel> compute(new ComputeModel(*kernels, options));
  model::TransformerOptions transformer_options;
  transformer_options.context_length = options.context_length;
  transformer_options.prefill_activations = *activations;
  transformer_options.with_prefill_weights = options.role != Role::kDecode;
  transformer_options.with_decode_weights = options.role != Role::kPrefill;
  if (options.packed_cache) transformer_options.packed_cache.folder = cache_dir() + "/packed";
  auto transformer =
      model::Transformer::create(compute->context_, std::move(*checkpoint), transformer_options);
  if (!transformer) return tl::unexpected(transformer.error());
  compute->transformer_ = std::move(*transformer);
  return compute;
}

}  // namespace baton::cli
