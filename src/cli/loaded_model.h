// A model file turned into everything that serving needs of it: weights, tokenizer, chat template.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/role.h"
#include "base/thread_pool.h"
#include "linalg/kernels.h"
#include "model/transformer.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton::cli {

/// The text side of a model, which is all that tokenize and render need.
struct TextModel {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  ///< nullptr: the file has none
  std::string chat_template_source;
};

/// Errors name the file and the key.
[[nodiscard]] Result<std::shared_ptr<const format::GgufFile>> open_model(const std::string& path);
[[nodiscard]] Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(
    const format::GgufFile& file);
/// The kernel set that `wanted` or, if that is empty, BATON_KERNELS asks for, else the best of this
/// CPU.
[[nodiscard]] Result<linalg::KernelSet> chosen_kernels(const std::string& wanted = {});
/// "int16", or "int8" if `kernels` have such activations. Errors name --prefill-activations, its
/// value and what would be right.
[[nodiscard]] Result<linalg::ActivationType> parse_activations(const std::string& text,
                                                               linalg::KernelSet kernels);
[[nodiscard]] Result<TextModel> load_text(const format::GgufFile& file);

/// What computes: kernels, threads, scratch and the packed model. Not movable: its parts point at
/// each other. Used by one thread at a time.
class ComputeModel {
 public:
  struct Options {
    std::vector<int> cpus;   ///< one thread for each; the first is the caller's (the engine thread)
    int context_length = 0;  ///< 0 = the model's own
    Role role = Role::kBoth;                    ///< only its weights are packed
    std::string kernels{};                      ///< a set's name; empty = what BATON_KERNELS says
    std::string prefill_activations = "int16";  ///< as parse_activations() takes it
    bool packed_cache = false;  ///< read and keep packed weights in the cache folder
  };
  [[nodiscard]] static Result<std::unique_ptr<ComputeModel>> create(
      std::shared_ptr<const format::GgufFile> file, const Options& options);

  [[nodiscard]] model::Transformer& transformer() { return *transformer_; }
  [[nodiscard]] ThreadPool& pool() { return pool_; }
  [[nodiscard]] linalg::Context& context() { return context_; }
  [[nodiscard]] linalg::KernelSet kernels() const { return context_.kernels; }

 private:
  ComputeModel(linalg::KernelSet kernels, const Options& options);

  ThreadPool pool_;
  linalg::Workspace workspace_;
  linalg::Context context_;
  std::unique_ptr<model::Transformer> transformer_;
};

}  // namespace baton::cli
